"""Selection of training records, and the potential errors they give (Eq. 12; spec, section 4).

Notation: record `j` has a training step `t_j`, widths `c_j` and a mean loss. Losses decrease during training and vary
between batches, so records of different times are made comparable before the `m` smallest are kept.

The paper keeps `m = 100`. On records of real supernets, compared with a table of networks that were each trained alone
(results/records.csv), potential errors of the best 100 do not correlate with the truth under any rule: the smallest
losses are determined by their batches. Two things help: averaging over all records, and leaving out the first half of
training, when the supernet does not separate widths yet. That is the default; the paper's is `keep=100, since=0`.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from bcnet.errors import SearchError
from bcnet.space import WidthSpace
from bcnet.space.problem import FloatArray, IntArray

Rule = Literal["naive", "running-mean", "rank"]
DEFAULT_RULE: Rule = "running-mean"
DEFAULT_SINCE = 0.5


def select_records(
    steps: npt.ArrayLike,
    widths: npt.ArrayLike,
    losses: npt.ArrayLike,
    *,
    keep: int | None = None,
    since: float = DEFAULT_SINCE,
    rule: Rule = DEFAULT_RULE,
    window: int = 200,
) -> tuple[IntArray, FloatArray]:
    """Return the `keep` best records (None: all): widths `(m, groups)` and comparable losses `(m,)`, best first.

    `steps` and `losses` have shape `(records,)`, `widths` `(records, groups)`. Records before the share `since` of the
    training are left out. `rule` makes losses of different times comparable: "naive" does nothing, "running-mean"
    subtracts the mean of the `window` records around each one, "rank" replaces losses by their rank, in [0, 1], within
    that window.

    Raises:
        SearchError: no records, inconsistent shapes, a loss that is not finite, an unknown rule, or a setting out of
            range.
    """
    times, table, values = _check_arrays(steps, widths, losses)
    if rule not in get_args(Rule):
        raise SearchError(f"the rule for records must be one of {', '.join(get_args(Rule))}; got {rule!r}")
    if (keep is not None and keep < 1) or window < 2:
        raise SearchError(f"keep must be at least 1 and window at least 2; got {keep} and {window}")
    if not 0 <= since < 1:
        raise SearchError(f"since must be a share of the training in [0, 1); got {since!r}")
    late = times >= times.min() + since * (times.max() - times.min())
    times = times[late]
    table = table[late]
    values = values[late]
    order = np.argsort(times, kind="stable")
    comparable = values.copy()
    if rule == "running-mean":
        comparable[order] = _minus_running_mean(values[order], window)
    elif rule == "rank":
        comparable[order] = _rank_in_window(values[order], window)
    best = np.argsort(comparable, kind="stable")[:keep]
    return table[best], comparable[best]


def potential_errors(space: WidthSpace, widths: npt.ArrayLike, losses: npt.ArrayLike) -> tuple[FloatArray, ...]:
    """Return `E[g][i]`, the mean loss of the records that use choice `i` in group `g`, one vector per group (Eq. 12).

    `widths` has shape `(records, groups)`, `losses` `(records,)`. A width that is not a choice counts for the nearest
    one. A choice that no record uses gets the largest observed error of its group.

    Raises:
        SearchError: no records, inconsistent shapes, or a loss that is not finite.
    """
    _, table, values = _check_arrays(np.arange(len(np.asarray(losses))), widths, losses)
    if table.shape[1] != len(space.groups):
        raise SearchError(f"records must have one width per group, {len(space.groups)} here; got {table.shape[1]}")
    return tuple(_of_group(group.choices, column, values) for group, column in zip(space.groups, table.T, strict=True))


def _of_group(choices: tuple[int, ...], column: IntArray, losses: FloatArray) -> FloatArray:
    grid = np.array(choices, dtype=np.int64)
    distance = np.abs(column[:, None] - grid)  # (records, choices); the wider of two equally near choices
    nearest = len(grid) - 1 - np.argmin(distance[:, ::-1], axis=1)
    counts = np.bincount(nearest, minlength=len(grid))
    sums = np.bincount(nearest, weights=losses, minlength=len(grid))
    means = sums / np.maximum(counts, 1)
    return np.where(counts > 0, means, means[counts > 0].max())


def _minus_running_mean(losses: FloatArray, window: int) -> FloatArray:
    start, stop = _windows(len(losses), window)
    total = np.concatenate([[0.0], np.cumsum(losses - losses.mean())])
    means: FloatArray = losses.mean() + (total[stop] - total[start]) / (stop - start)
    return np.subtract(losses, means)


def _rank_in_window(losses: FloatArray, window: int) -> FloatArray:
    start, stop = _windows(len(losses), window)
    ranks = [(losses[a:b] < loss).mean() for loss, a, b in zip(losses, start, stop, strict=True)]
    return np.array(ranks, dtype=np.float64)


def _windows(count: int, window: int) -> tuple[IntArray, IntArray]:
    """Return start and stop of the window around each record, shifted inwards at the ends."""
    width = min(window, count)
    start = np.clip(np.arange(count) - width // 2, 0, count - width)
    return start, start + width


def _check_arrays(steps: Any, widths: Any, losses: Any) -> tuple[IntArray, IntArray, FloatArray]:
    times = np.asarray(steps)
    table = np.asarray(widths)
    values = np.asarray(losses, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or table.ndim != 2 or not len(times) == len(table) == len(values):
        raise SearchError(
            "records must be at least one step, row of widths and loss each, in equal numbers; got shapes "
            f"{times.shape}, {table.shape}, {values.shape}"
        )
    if not np.isfinite(values).all():
        raise SearchError(f"recorded losses must be finite; record {int(np.argmin(np.isfinite(values)))} is not")
    return times, table.astype(np.int64), values
