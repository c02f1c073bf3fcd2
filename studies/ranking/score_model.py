"""Does a model of the scores rank widths better than the scores? On those of `ranking_scores.csv`, without training.

Each cell of that file is a supernet's scores of 200 networks of Channel-Bench-Macro. For each, and for accuracy and
loss: the scores themselves, a score model fitted to them (`bcnet.searchers.ScoreModel`), and that model where the
closed form keeps half of the say, as in a search on a supernet. Beside them what needs no supernet: multiply-adds, the
closed form by exponent, and the model fitted to the first training of 8, 16 and 32 networks of the table drawn at
random, the mean over ten draws.

Against the table's accuracies (where a training was looked at, those of the other two): Kendall's tau, how much more of
it than the closed form with p = 0 has, tau within bins of 5 % of the multiply-adds, regret under 25, 50 and 75 % of
them and its mean, each with the 95 % interval of resampled widths. A resample holds two thirds of the widths, so that
the best of it is often not the best of all: intervals of regret may lie to one side of the figure.

    python -m studies.ranking.score_model [--table FILE --network NAME]    # a minute, into results/ranking_model.csv
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bcnet.searchers import EXPONENTS, TRUST_IN_PATHS, ScoreModel, closed_slopes
from bcnet.space import Widths
from studies.ranking.channel_bench_macro import BUDGETS, MOBILENET, Table, of_network
from studies.ranking.channel_bench_macro import DATA as TABLE
from studies.ranking.statistics import Array, Estimate, kendall, kendall_within_bins, regret, resamples
from studies.shared.provenance import ROOT, append_row, finished, provenance

SCORES = ROOT / "results" / "ranking_scores.csv"
OUT = ROOT / "results" / "ranking_model.csv"
CELL = ("supernet", "seed", "epochs", "image_size")
TRAINED = (8, 16, 32)
DRAWS = 10
BIN = 0.05
CLOSED = 0.0  # the exponent whose closed form ranks the table of the MobileNet best


def main(
    scores: Annotated[Path, typer.Option(help="Scores of supernets, by `studies.ranking`.")] = SCORES,
    table: Annotated[Path, typer.Option(help="The table.")] = TABLE,
    network: Annotated[str, typer.Option(help="Its network: mobilenet, resnet, or a name of ours.")] = MOBILENET,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Compute all rows that are not finished."""
    scores = of_network(scores, SCORES, network)
    out = of_network(out, OUT, network)
    for needed in (table, scores):
        if not needed.is_file():
            raise SystemExit(f"{needed} is not there: tables are Channel-Bench-Macro's, scores of studies.ranking")
    truths = Table.read(table, network)
    _model(truths, scores, out)


def _model(table: Table, scores: Path, out: Path) -> None:
    judged = widths_of(next(iter(cells_of(scores).values())))
    truth = table.accuracies[[table.rows[w] for w in judged]]
    for name, seed, widths, found in kinds_of_scores(scores):
        order = [widths.index(w) for w in judged]
        for kind, guess in _by_scores(table, widths, found):
            key = {"scores": name, "seed": seed, "kind": kind}
            judge(table, judged, truth.mean(axis=1), [guess[order]], key, out)
    nothing = {"scores": "none", "seed": "0"}
    macs = np.asarray(table.space.cost(np.array(judged)).macs, dtype=np.float64)
    judge(table, judged, truth.mean(axis=1), [macs], {**nothing, "kind": "macs"}, out)
    logs = np.log(np.array(judged, dtype=np.float64))
    for exponent in EXPONENTS:
        guess = logs @ closed_slopes(table.space, exponent)
        judge(table, judged, truth.mean(axis=1), [guess], {**nothing, "kind": f"closed form, p = {exponent:g}"}, out)
    for count in TRAINED:
        key = {"scores": f"first training of {count} networks", "seed": "0", "kind": "model"}
        judge(table, judged, truth[:, 1:].mean(axis=1), _of_trainings(table, judged, count), key, out)


def scores_of(rows: list[dict[str, str]], metric: str) -> Array:
    """The mean over the sides that the supernet was trained by."""
    sides = [side for side in ("left", "right") if rows[0][f"{side}_{metric}"]]
    sign = -1.0 if metric == "loss" else 1.0
    return sign * np.mean([[float(row[f"{side}_{metric}"]) for row in rows] for side in sides], axis=0)


def _by_scores(table: Table, widths: list[Widths], scores: Array) -> list[tuple[str, Array]]:
    kinds = [("scores", scores)]
    for name, trust in (("model", 1.0), ("model and closed form", TRUST_IN_PATHS)):
        model = ScoreModel.fit(table.space, widths, scores.tolist(), trust)
        kinds.append((name, model.predict(widths)))
    return kinds


def _of_trainings(table: Table, judged: list[Widths], count: int) -> list[Array]:
    """What models of networks that are not judged expect of those that are."""
    draws = first_trainings(table, judged, count)
    return [ScoreModel.fit(table.space, widths, found.tolist(), 1.0).predict(judged) for widths, found in draws]


def first_trainings(table: Table, judged: list[Widths], count: int) -> Iterator[tuple[list[Widths], Array]]:
    """Draws of `count` networks, none of them of `judged`, each with the accuracies of their first training."""
    apart = set(judged)
    others = [widths for widths in table.rows if widths not in apart]
    for draw in range(DRAWS):
        chosen = [others[row] for row in np.random.default_rng(draw).choice(len(others), count, replace=False)]
        yield chosen, table.accuracies[[table.rows[widths] for widths in chosen], 0]


def cells_of(scores: Path) -> dict[tuple[str, ...], list[dict[str, str]]]:
    """The rows of a file of scores by supernet, seed, epochs and pixels; all have the same networks."""
    cells: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    with scores.open() as file:
        for row in csv.DictReader(file):
            cells[tuple(row[name] for name in CELL)].append(row)
    return cells


def kinds_of_scores(scores: Path) -> Iterator[tuple[str, str, list[Widths], Array]]:
    """Of each cell by accuracy and by loss: a name, the seed, the networks, and what the supernet scored them."""
    for (supernet, seed, epochs, size), rows in cells_of(scores).items():
        for metric in ("accuracy", "loss"):
            name = f"{supernet}, {epochs} epochs at {size}x{size}, {metric}"
            yield name, seed, widths_of(rows), scores_of(rows, metric)


def widths_of(rows: Iterable[dict[str, str]]) -> list[Widths]:
    """The networks of rows."""
    return [tuple(map(int, row["architecture"].split())) for row in rows]


def judge(
    table: Table, judged: list[Widths], truth: Array, guesses: list[Array], key: dict[str, str], out: Path
) -> None:
    """Add the row of `key`, unless it is there: how well guesses, the mean over all, rank `judged` by their `truth`."""
    if finished(out, key):
        return
    counts = resamples(len(judged))
    macs = np.asarray(table.space.cost(np.array(judged)).macs, dtype=np.float64)
    share = macs / float(table.space.reference.macs)

    def columns(name: str, statistic: Callable[[Array, Array], Array]) -> dict[str, object]:
        """Of a guess and of counts; the mean over the guesses and its interval."""
        return Estimate.of(lambda w: np.mean([statistic(guess, w) for guess in guesses], axis=0), counts).columns(name)

    closed = np.log(np.array(judged, dtype=np.float64)) @ closed_slopes(table.space, CLOSED)
    row: dict[str, object] = {**key, "networks": len(judged)}
    row |= columns("tau", lambda guess, w: kendall(guess, truth, w))
    row |= columns("tau_above_closed_form", lambda guess, w: kendall(guess, truth, w) - kendall(closed, truth, w))
    row |= columns("tau_within_5%_of_macs", lambda guess, w: kendall_within_bins(guess, truth, share, BIN, w))
    for limit in BUDGETS:
        row |= columns(f"regret_{limit:.0%}", lambda guess, w, limit=limit: regret(guess, truth, share, limit, w))
    row |= columns("mean_regret", lambda guess, w: _mean_regret(guess, truth, share, w))
    append_row(out, {**row, **provenance()})
    print(row, flush=True)


def _mean_regret(guess: Array, truth: Array, share: Array, counts: Array) -> Array:
    return np.asarray(np.mean([regret(guess, truth, share, limit, counts) for limit in BUDGETS], axis=0))


if __name__ == "__main__":
    typer.run(main)
