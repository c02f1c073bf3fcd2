"""The study of early stopping: its quick form runs, goes on where it was, and its figures mean what they say."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from bcnet.searchers import Evolution, Race, search_widths
from bcnet.space import Budget
from bcnet.testing.searchers import smooth_score, toy_space
from studies.early_stopping import __main__ as early_stopping
from studies.early_stopping.__main__ import Recorded, TableScore, summary
from studies.early_stopping.matrix import Matrix

HALF = Budget(macs=0.5)


def test_the_score_of_a_matrix_is_that_of_both_sides_in_any_order_of_batches() -> None:
    matrix = Matrix(np.array([[1, 2]]), np.array([[[3, 5], [1, 3]]]), np.array([[[1.0, 2.0], [3.0, 4.0]]]), 10)
    assert matrix.scores("accuracy").tolist() == [[20.0, 40.0]]
    assert matrix.scores("loss").tolist() == [[-2.0, -3.0]]
    for order in range(4):
        score = TableScore.of(matrix, "accuracy", order)
        assert score((1, 2)) == 30.0
        assert sorted(score.on_batch((1, 2), number) for number in range(score.batches)) == [20.0, 40.0]


def test_a_recorded_search_retains_whom_the_search_retained() -> None:
    space, searcher = toy_space(5), Evolution(population=12, generations=4, parents=4)
    found = search_widths(space, smooth_score, HALF, searcher=searcher)
    met = [c.widths for c in found.evaluations]
    generations = tuple(tuple(met[start : start + 12]) for start in range(0, 48, 12))
    again = search_widths(space, smooth_score, HALF, searcher=Recorded(generations, 4))
    assert (again.evaluations, again.best, again.front) == (found.evaluations, found.best, found.front)

    class Batches:
        batches = 9

        def on_batch(self, widths: tuple[int, ...], number: int) -> float:
            return smooth_score(widths) + 1e-9 * ((number * sum(widths)) % 7)

        def __call__(self, widths: tuple[int, ...]) -> float:
            raise AssertionError("a race asks for batches")

    raced = search_widths(space, Batches(), HALF, searcher=Recorded(generations, 4), early_stop=Race())
    assert raced.best.widths == found.best.widths
    assert raced.effort < 0.8


def test_the_summary_counts_races_within_the_tolerance() -> None:
    trials = [
        {"effort": e, "effort_last": e, "stopped": 0.5, "regret": r, "front_lost": 0.0}
        for e, r in ((0.2, 0.0), (0.3, 0.4))
    ]
    row = summary(trials, "accuracy")
    assert (row["fewer_passes"], row["regret_within_0.1"], row["regret_100%"]) == ("4.00", "0.500", "0.400")


@pytest.mark.slow
def test_the_study_in_its_quick_form(tmp_path: Path) -> None:
    out, runs = tmp_path / "early_stopping.csv", tmp_path / "runs"
    early_stopping.main(quick=True, out=out, runs=runs, threads=1)
    written = {path.name: path.read_text() for path in tmp_path.glob("quick_*.csv")}
    rows = list(csv.DictReader(written["quick_early_stopping.csv"].splitlines()))
    assert [row["part"] for row in rows] == ["choosing"] * 2 + ["judging"] * 2 + ["all"] * 2
    assert all(0 < float(row["effort"]) <= 1 for row in rows)
    early_stopping.main(quick=True, out=out, runs=tmp_path / "no runs", threads=1)
    assert {path.name: path.read_text() for path in tmp_path.glob("quick_*.csv")} == written
