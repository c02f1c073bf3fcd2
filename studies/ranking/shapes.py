"""Would the score model rank better with curvature, or with pairs of groups? On scores and accuracies that are there.

`bcnet.searchers.ScoreModel` is linear in log widths. Here further terms join it, fitted by the same BayesianRidge, the
exponent of the closed form chosen by the same error on candidates left out:

    linear      a phi_p(c) + sum_g b_g u_g,   u_g = log c_g, centred
    curvature   and sum_g k_g u_g^2           more width is worth less and less, or more
    pairs       and sum_g<h m_gh u_g u_h      groups whose widths matter together

All terms of a kind count beforehand a quarter of what the linear ones do. They are fitted to the scores of supernets in
`ranking_scores.csv`, and to the first training of 8, 16, 32 and 64 networks of the table drawn at random, the mean over
ten draws; what they expect of the 200 networks is held against the table. `r2` is that on candidates left out.

    python -m studies.ranking.shapes    # two minutes, into results/ranking_shapes.csv
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bcnet.searchers import EXPONENTS, closed_slopes
from bcnet.space import Widths, WidthSpace
from studies.ranking.channel_bench_macro import DATA as TABLE
from studies.ranking.channel_bench_macro import Table
from studies.ranking.score_model import SCORES, cells_of, first_trainings, judge, kinds_of_scores, widths_of
from studies.ranking.statistics import Array
from studies.shared.provenance import ROOT

OUT = ROOT / "results" / "ranking_shapes.csv"
TRAINED = (8, 16, 32, 64)


def _curvature(u: Array) -> Array:
    return u**2


def _pairs(u: Array) -> Array:
    return np.stack([u[:, g] * u[:, h] for g, h in itertools.combinations(range(u.shape[1]), 2)], axis=1)


SHAPES: dict[str, tuple[Callable[[Array], Array], ...]] = {
    "linear": (),
    "curvature": (_curvature,),
    "pairs": (_pairs,),
    "curvature and pairs": (_curvature, _pairs),
}
"""Terms beside the linear ones: of log widths `(candidates, groups)`, features `(candidates, terms)`."""


def expected(
    space: WidthSpace,
    scored: Sequence[Widths],
    scores: Array,
    judged: Sequence[Widths],
    shape: str = "linear",
    cheaper: Sequence[Array] = (),
) -> tuple[Array, float]:
    """What a model of this shape, fitted to scores, expects of `judged`, and its R² on candidates left out.

    Slopes `(groups,)` of models of `cheaper` scores count beforehand as much as the closed form does.
    """
    from sklearn.linear_model import BayesianRidge

    logs = np.log(np.array(scored, dtype=np.float64))
    centre = logs.mean(axis=0)
    asked = np.log(np.array(judged, dtype=np.float64)) - centre
    values = (scores - scores.mean()) / scores.std()
    best = (np.inf, asked[:, 0])
    for exponent in EXPONENTS:
        slopes = closed_slopes(space, exponent)
        known = []
        wanted = []
        for features, weight in _features([slopes, *cheaper], shape):
            here = features(logs - centre)
            spread = here.std(axis=0)
            scale = weight / np.where(spread > 0, spread, 1.0)
            known.append((here - here.mean(axis=0)) * scale)
            wanted.append((features(asked) - here.mean(axis=0)) * scale)
        x = np.hstack(known)
        fit = BayesianRidge(fit_intercept=False).fit(x, values)
        own = np.diag(fit.alpha_ * x @ fit.sigma_ @ x.T)  # how much a fitted value follows the candidate's own score
        error = float(np.mean(((values - x @ fit.coef_) / np.maximum(1 - own, 1e-6)) ** 2))
        best = min(best, (error, np.hstack(wanted) @ fit.coef_), key=lambda pair: pair[0])
    return best[1], 1 - best[0]


def _features(sums: Sequence[Array], shape: str) -> list[tuple[Callable[[Array], Array], float]]:
    """Features of log widths with the standard deviation that each has beforehand; `sums` are slopes of known sums."""
    groups = len(sums[0])
    found: list[tuple[Callable[[Array], Array], float]] = [
        (lambda u: u @ np.transpose(sums), np.sqrt(groups)),
        (lambda u: u, 1.0),
    ]
    for more in SHAPES[shape]:
        terms = more(np.zeros((1, groups))).shape[1]
        found.append((more, 0.5 * np.sqrt(groups / terms)))
    return found


def main(
    scores: Annotated[Path, typer.Option(help="Scores of supernets, by `studies.ranking`.")] = SCORES,
    table: Annotated[Path, typer.Option(help="Channel-Bench-Macro's table of the MobileNet.")] = TABLE,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Compute all rows that are not finished."""
    for needed in (table, scores):
        if not needed.is_file():
            raise SystemExit(f"{needed} is not there: the table is Channel-Bench-Macro's, the scores studies.ranking's")
    truths = Table.read(table)
    judged = widths_of(next(iter(cells_of(scores).values())))
    accuracies = truths.accuracies[[truths.rows[w] for w in judged]]
    for (name, seed, scored, found), shape in itertools.product(kinds_of_scores(scores), SHAPES):
        guess, r2 = expected(truths.space, scored, found, judged, shape)
        key = {"scores": name, "seed": seed, "kind": shape, "r2": f"{r2:.3f}"}
        judge(truths, judged, accuracies.mean(axis=1), [guess], key, out)
    for count, shape in itertools.product(TRAINED, SHAPES):
        guesses = []
        shares = []
        for chosen, first in first_trainings(truths, judged, count):
            guess, r2 = expected(truths.space, chosen, first, judged, shape)
            guesses.append(guess)
            shares.append(r2)
        name = f"first training of {count} networks"
        key = {"scores": name, "seed": "0", "kind": shape, "r2": f"{np.mean(shares):.3f}"}
        judge(truths, judged, accuracies[:, 1:].mean(axis=1), guesses, key, out)


if __name__ == "__main__":
    typer.run(main)
