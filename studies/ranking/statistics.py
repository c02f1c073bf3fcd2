"""How well scores rank: rank correlations with intervals, and the regret of the choices they lead to.

Notation: `s_ij = sign(x_i - x_j)`, `t_ij = sign(y_i - y_j)` for items `i`, `j`, and `w_i` how often item `i` counts:

    tau-b = sum w_i w_j s_ij t_ij / sqrt(sum w_i w_j s_ij^2 * sum w_i w_j t_ij^2)

A bootstrap resample of the items is a vector of counts `w`, so that all resamples are a few matrix products. Intervals
are percentiles over resamples of the widths; two scores of the same widths are compared on the same resamples. They say
what other widths would change, and nothing of what another training would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]
Statistic = Callable[..., Array]  # of arrays (items,) and of counts (resamples, items): (resamples,)


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, statistic: Callable[[Array], Array], counts: Array) -> Estimate:
        """`statistic` of the items as they are, and percentiles over the resamples `counts`, `(resamples, items)`."""
        value = statistic(np.ones((1, counts.shape[1])))
        resampled = statistic(counts)
        defined = resampled[np.isfinite(resampled)]  # where all items of a resample are equal there is no figure
        low, high = np.percentile(defined, [2.5, 97.5]) if len(defined) else (np.nan, np.nan)
        return cls(float(value[0]), float(low), float(high))

    def columns(self, name: str) -> dict[str, object]:
        """The figure and the ends of its interval as columns of a CSV, of four digits."""
        values = {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}
        return {column: round(value, 4) for column, value in values.items()}


def resamples(items: int, *, seed: int = 0, count: int = 2000) -> Array:
    """Bootstrap counts, shape `(count, items)`: how often every item is drawn."""
    rng = np.random.default_rng([seed, items])
    return rng.multinomial(items, np.full(items, 1 / items), size=count).astype(np.float64)


def kendall(x: Array, y: Array, counts: Array) -> Array:
    """Kendall's tau-b for every row of `counts`, shape `(resamples,)`."""
    s, t = (np.sign(np.subtract.outer(a, a)) for a in (x, y))
    agreement, of_x, of_y = (((counts @ matrix) * counts).sum(axis=1) for matrix in (s * t, s * s, t * t))
    with np.errstate(invalid="ignore"):
        return np.asarray(agreement / np.sqrt(of_x * of_y))


def mean_kendall(xs: Sequence[Array], y: Array, counts: Array) -> Array:
    """The mean of Kendall's tau-b over several scores, one per seed."""
    return np.asarray(np.mean([kendall(x, y, counts) for x in xs], axis=0))


def spearman(x: Array, y: Array, counts: Array) -> Array:
    """Spearman's rho for every row of `counts`, shape `(resamples,)`: Pearson's correlation of the mean ranks."""
    total = counts.sum(axis=1, keepdims=True)
    a, b = (
        ranks - (ranks * counts).sum(axis=1, keepdims=True) / total for ranks in (_ranks(x, counts), _ranks(y, counts))
    )
    with np.errstate(invalid="ignore"):
        return np.asarray(
            (counts * a * b).sum(axis=1) / np.sqrt((counts * a * a).sum(axis=1) * (counts * b * b).sum(axis=1))
        )


def kendall_given(x: Array, y: Array, z: Array, counts: Array) -> Array:
    """Kendall's tau-b of what straight lines in `z`, fitted to each resample, leave over of `x` and of `y`."""
    return np.array([kendall(_residuals(x, z, w), _residuals(y, z, w), w[None])[0] for w in counts])


def kendall_within_bins(x: Array, y: Array, share: Array, width: float, counts: Array) -> Array:
    """Kendall's tau-b among items of nearly the same `share` of a cost, shape `(resamples,)`.

    Bins of `width` cut (0, 1] up; the mean over them is weighted by their pairs, and a bin without a tau has none.
    """
    found = np.zeros(len(counts))
    pairs = np.zeros(len(counts))
    for start in np.arange(0, 1, width):
        inside = (share > start) & (share <= start + width)
        if inside.sum() < 2:
            continue
        there = counts[:, inside]
        tau = kendall(x[inside], y[inside], there)
        number = there.sum(axis=1)
        weight = np.where(np.isfinite(tau), number * (number - 1), 0.0)
        found = found + weight * np.nan_to_num(tau)
        pairs = pairs + weight
    with np.errstate(invalid="ignore"):
        return np.asarray(found / pairs)


def regret(score: Array, truth: Array, cost: Array, limit: float, counts: Array) -> Array:
    """The best `truth` within `cost <= limit` minus that of the choice of `score`, shape `(resamples,)`.

    Of choices that score the same, the mean. Where a resample holds nothing within the limit, there is no regret.
    """
    there = (cost <= limit) & (counts > 0)
    best = np.where(there, truth, -np.inf).max(axis=1)
    highest = np.where(there, score, -np.inf).max(axis=1, keepdims=True)
    chosen = np.where(there & (score == highest), counts, 0.0)
    with np.errstate(invalid="ignore"):
        return np.asarray(best - chosen @ truth / chosen.sum(axis=1))


def _ranks(x: Array, counts: Array) -> Array:
    """Mean ranks of `x` where item `i` is there `counts[:, i]` times, shape of `counts`."""
    levels = stats.rankdata(x, method="dense").astype(int) - 1  # (items,)
    belongs = np.equal.outer(levels, np.arange(levels.max() + 1)).astype(np.float64)  # (items, levels)
    per_level = counts @ belongs
    below = np.cumsum(per_level, axis=1) - per_level
    return np.asarray((below + (per_level + 1) / 2)[:, levels])


def _residuals(x: Array, z: Array, weights: Array) -> Array:
    share = weights / weights.sum()
    dx = x - share @ x
    dz = z - share @ z
    return np.asarray(dx - dz * (share @ (dz * dx)) / (share @ (dz * dz)))
