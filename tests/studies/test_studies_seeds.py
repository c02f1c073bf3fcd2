import csv

import pytest
import typer
from tiny_job import tiny_search

import bcnet
from studies.scores import seeds


@pytest.mark.slow
def test_the_best_of_a_run_are_trained_by_its_own_seed_and_by_others(tmp_path, capsys):
    found = bcnet.find_widths(
        "resnet_digits", "digits", budget=bcnet.Budget(macs=0.5), run_dir=tmp_path / "run", effort="small", threads=1,
        changes={"epochs": 1},
    )  # fmt: skip
    given = "mine=" + ",".join(map(str, found.widths))
    for _ in range(2):  # the second time everything is there
        seeds.main([tmp_path / "run"], best=3, seeds=2, widths=[given], out=tmp_path / "seeds.csv")
    with (tmp_path / "seeds.csv").open(newline="") as file:
        rows = {row["network"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["best 1", "best 2", "best 3", "balanced", "Uniform", "mine"]
    highest = sorted((c.score for c in bcnet.Run.open(tmp_path / "run").evaluations), reverse=True)[:3]
    for score, row in zip(highest, list(rows.values())[:3], strict=True):
        own, other = map(float, row["scores"].split())
        assert own == pytest.approx(score, abs=1e-4)
        assert float(row["score_in_search"]) == pytest.approx(score, abs=1e-4)
        assert own != other
    assert rows["mine"]["widths"] == " ".join(map(str, found.widths))
    key = {"model": rows["mine"]["model"], "seeds": "2"}
    assert seeds.table(tmp_path / "seeds.csv", key).shape == (3, 2)
    assert "nats over the best" in capsys.readouterr().out


def test_what_is_no_search_by_trainings_or_no_widths_is_refused(tmp_path):
    tiny_search(tmp_path / "run")
    with pytest.raises(typer.BadParameter, match="is no run that trained candidates"):
        seeds.main([tmp_path / "run"], out=tmp_path / "seeds.csv")
    with pytest.raises(typer.BadParameter, match=r"--widths is NAME=16,16,\.\.\., a whole number for each group; got"):
        seeds.main([tmp_path / "run"], widths=["mine=wide"], out=tmp_path / "seeds.csv")
