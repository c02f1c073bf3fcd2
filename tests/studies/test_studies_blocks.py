import csv

import pytest
import typer
from tiny_job import tiny_search

import bcnet
from studies.scores import blocks


def test_losses_lie_on_lines_in_the_logarithm_and_add_up():
    tables = [[(16, 0.0), (8, 0.1), (4, 0.3)], [(10, 0.0), (5, 0.2), (2, 0.2)]]
    assert blocks.summed(tables, (16, 10)) == 0.0
    assert blocks.summed(tables, (8, 5)) == pytest.approx(0.3)
    assert blocks.summed(tables, (2, 10)) == pytest.approx(0.5)  # the last line goes on
    assert blocks.summed(tables, (16, 1)) == pytest.approx(0.2)
    assert 0 < blocks.summed(tables, (12, 10)) < 0.05


@pytest.mark.slow
def test_widths_of_blocks_stand_beside_those_of_the_run_once(tmp_path):
    found = bcnet.find_widths(
        "resnet_digits", "digits", budget=bcnet.Budget(macs=0.5), run_dir=tmp_path / "run", effort="small", threads=1,
        changes={"epochs": 1},
    )  # fmt: skip
    for _ in range(2):
        blocks.main([tmp_path / "run"], steps=2, out=tmp_path / "blocks.csv")
    with (tmp_path / "blocks.csv").open(newline="") as file:
        rows = {row["widths_by"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["blocks", "search", "balanced", "Uniform"]
    assert rows["search"]["widths"] == " ".join(map(str, found.widths))
    assert all(0 < float(row["macs_ratio"]) <= 0.5 for row in rows.values())
    assert min(rows.values(), key=lambda row: float(row["grown"]))["widths_by"] == "blocks"


def test_a_run_without_candidates_from_the_original_is_refused(tmp_path):
    tiny_search(tmp_path / "run")
    with pytest.raises(typer.BadParameter, match="is no run that scored candidates from the original"):
        blocks.main([tmp_path / "run"], out=tmp_path / "blocks.csv")
