import csv

import pytest
import typer
from tiny_job import tiny_search

from studies.scores import finalists

LONGER = {"scorer": "trainings", "searcher": "model", "random_networks": 8, "random_epochs": 1, "num_choices": 8}
LONGER |= {"score": "loss", "finalist_epochs": 2, "rescored": 3}


def test_each_finalist_of_a_run_has_a_row_once(tmp_path):
    outcome = tiny_search(tmp_path / "run", **LONGER)
    for _ in range(2):
        finalists.main([tmp_path / "run"], tmp_path / "finalists.csv")
    with (tmp_path / "finalists.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = outcome.result["search"]["rescored"]
    assert [row["widths"] for row in rows] == [" ".join(map(str, row["widths"])) for row in wanted]
    assert [float(row["score"]) for row in rows] == pytest.approx([row["fresh_score"] for row in wanted], abs=1e-4)
    (chosen,) = [row for row in rows if row["chosen"] == "True"]
    assert tuple(map(int, chosen["widths"].split())) == outcome.widths
    assert {row["epochs"] for row in rows} == {"2"}
    heuristics = {tuple(row["widths"]): row["name"] for row in outcome.result["search"]["heuristics"]}
    names = [heuristics.get(tuple(row["widths"]), "by the model") for row in wanted]
    assert [row["name"] for row in rows] == names
    assert len(set(names)) > 1


def test_other_runs_are_refused(tmp_path):
    tiny_search(tmp_path / "run")
    with pytest.raises(typer.BadParameter, match="is no finished run with --finalist-epochs"):
        finalists.main([tmp_path / "run"], tmp_path / "finalists.csv")
