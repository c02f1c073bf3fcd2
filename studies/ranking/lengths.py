"""Would one model over many cheap scores and a few whole trainings rank better than the whole trainings alone?

The whole trainings are the first ones of 4, 8, 16 and 32 networks of Channel-Bench-Macro drawn at random, the mean over
ten draws. The cheap scores are those that are there: of each supernet in `ranking_scores.csv`, and of the short
trainings from the original in `ranking_trainings.csv`. A score model is fitted to the cheap ones, and what it expects
joins the model of the whole trainings as one more sum with a scale of its own, as the closed form is one:

    score(c) = a phi_p(c) + r cheap(c) + sum_g b_g u_g + noise,   u_g = log c_g

That is the autoregression of Kennedy and O'Hagan, "Predicting the output from a complex computer code when fast
approximations are available", Biometrika 2000, linear in log widths. `r` is a whole scale before anything is known. The
200 networks that `ranking_scores.csv` judges supernets by are held against the table's other two trainings. None of
them is among the whole trainings.

    python -m studies.ranking.lengths    # a minute, into results/ranking_lengths.csv
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from bcnet.searchers import ScoreModel
from bcnet.space import Widths
from studies.ranking.channel_bench_macro import DATA as TABLE
from studies.ranking.channel_bench_macro import Table
from studies.ranking.score_model import SCORES, cells_of, first_trainings, judge, kinds_of_scores, widths_of
from studies.ranking.shapes import expected
from studies.ranking.statistics import Array
from studies.ranking.trainings import CANDIDATES
from studies.ranking.trainings import OUT as TRAININGS
from studies.shared.provenance import ROOT, rows_of

OUT = ROOT / "results" / "ranking_lengths.csv"
WHOLE = (4, 8, 16, 32)
ALONE = "none"


def cheap_models(table: Table, scores: Path, trainings: Path) -> Iterator[tuple[str, ScoreModel]]:
    """A model of each kind of cheap scores."""

    def model(widths: list[Widths], found: list[float]) -> ScoreModel:
        return ScoreModel.fit(table.space, widths, found, 1.0)

    for name, _seed, widths, found in kinds_of_scores(scores):
        yield name, model(widths, found.tolist())
    short = rows_of(trainings, {"seed": "0"})
    for count in CANDIDATES:
        rows = short[:count]
        losses = [-float(row["loss"]) for row in rows]
        yield f"{count} trainings of an epoch from the original", model(widths_of(rows), losses)


def guesses(table: Table, judged: list[Widths], count: int, cheaper: list[Array]) -> list[Array]:
    """What models of `count` whole trainings, none of them of `judged`, expect of these."""
    draws = first_trainings(table, judged, count)
    return [expected(table.space, chosen, first, judged, cheaper=cheaper)[0] for chosen, first in draws]


def main(
    scores: Annotated[Path, typer.Option(help="Scores of supernets, by `studies.ranking`.")] = SCORES,
    trainings: Annotated[Path, typer.Option(help="Short trainings, by `studies.ranking.trainings`.")] = TRAININGS,
    table: Annotated[Path, typer.Option(help="Channel-Bench-Macro's table of the MobileNet.")] = TABLE,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Compute all rows that are not finished."""
    for needed in (table, scores, trainings):
        if not needed.is_file():
            raise SystemExit(f"{needed} is not there: the table is Channel-Bench-Macro's, the scores studies.ranking's")
    truths = Table.read(table)
    judged = widths_of(next(iter(cells_of(scores).values())))
    truth = truths.accuracies[[truths.rows[w] for w in judged]][:, 1:].mean(axis=1)
    cheap = [(ALONE, list[Array]()), *((n, [m.own]) for n, m in cheap_models(truths, scores, trainings))]
    for name, cheaper in cheap:
        for count in WHOLE:
            key = {"scores": f"first training of {count} networks", "seed": "0", "kind": name}
            judge(truths, judged, truth, guesses(truths, judged, count, cheaper), key, out)


if __name__ == "__main__":
    typer.run(main)
