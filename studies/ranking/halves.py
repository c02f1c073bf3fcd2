"""Does a constant that is chosen on one half of the table hold on the other? The trust in scores of supernets.

On a supernet the score model counts its scores by `trust` beside the closed form (`bcnet.searchers.TRUST_IN_PATHS`).
The 200 networks of `ranking_scores.csv` are halved at random. On the first half the trust is chosen by the mean of
Kendall's tau over all supernets, by accuracy and by loss; on the second half that trust, the usual one and the best one
there are compared. A model is fitted to the scores of all networks and to nothing else: only the choice has seen the
table.

    python -m studies.ranking.halves    # a minute, into results/ranking_halves.csv
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bcnet.searchers import TRUST_IN_PATHS, ScoreModel
from studies.ranking.channel_bench_macro import DATA as TABLE
from studies.ranking.channel_bench_macro import Table
from studies.ranking.score_model import SCORES, kinds_of_scores
from studies.ranking.statistics import Array, kendall
from studies.shared.provenance import ROOT, append_row, finished, provenance

OUT = ROOT / "results" / "ranking_halves.csv"
TRUSTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SPLITS = 20


def expected_by_trust(table: Table, scores: Path) -> tuple[Array, Array]:
    """What models expect, `(trusts, kinds of scores, networks)`, and the networks' accuracies, `(networks,)`."""
    kinds = list(kinds_of_scores(scores))
    judged = kinds[0][2]

    def expected(trust: float) -> list[Array]:
        models = (ScoreModel.fit(table.space, widths, found.tolist(), trust) for _, _, widths, found in kinds)
        return [model.predict(judged) for model in models]

    truth = table.score("exact")[[table.rows[widths] for widths in judged]]
    return np.array([expected(trust) for trust in TRUSTS]), truth


def mean_tau(expected: Array, truth: Array, chosen: Array) -> Array:
    """The mean over the kinds of Kendall's tau among the `chosen` networks, `(trusts,)`."""
    once = np.ones((1, len(chosen)))
    taus = [[kendall(guess[chosen], truth[chosen], once)[0] for guess in kinds] for kinds in expected]
    return np.mean(taus, axis=1)


def main(
    scores: Annotated[Path, typer.Option(help="Scores of supernets, by `studies.ranking`.")] = SCORES,
    table: Annotated[Path, typer.Option(help="Channel-Bench-Macro's table of the MobileNet.")] = TABLE,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Compute all rows that are not finished: one for each way to halve."""
    for needed in (table, scores):
        if not needed.is_file():
            raise SystemExit(f"{needed} is not there: the table is Channel-Bench-Macro's, the scores studies.ranking's")
    expected, truth = expected_by_trust(Table.read(table), scores)
    for split in range(SPLITS):
        if finished(out, {"split": str(split)}):
            continue
        order = np.random.default_rng([split, 12]).permutation(len(truth))
        here, there = (mean_tau(expected, truth, part) for part in np.array_split(order, 2))
        best = int(np.argmax(here))
        row = {
            "split": split,
            "trust": TRUSTS[best],
            "tau": round(float(here[best]), 4),
            "tau_on_the_other_half": round(float(there[best]), 4),
            f"tau_there_by_{TRUST_IN_PATHS:g}": round(float(there[TRUSTS.index(TRUST_IN_PATHS)]), 4),
            "best_tau_there": round(float(there.max()), 4),
            "best_trust_there": TRUSTS[int(np.argmax(there))],
        }
        append_row(out, {**row, **provenance()})
        print(row, flush=True)


if __name__ == "__main__":
    typer.run(main)
