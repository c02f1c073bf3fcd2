"""The summary of the CIFAR table: a place for every method, means, and what a method is ahead by."""

import csv
import shutil

import pytest

from studies.cifar.__main__ import METHODS, OTHERS
from studies.cifar.summary import ORDER, summarise
from studies.shared.provenance import ROOT, rows


def test_every_method_has_its_place_in_the_summary():
    assert {*METHODS, *OTHERS, "original"} == set(ORDER)
    assert len(ORDER) == len(set(ORDER))


def test_differences_are_between_networks_of_the_same_seeds(tmp_path):
    table = tmp_path / "table.csv"
    top1 = {
        "uniform": {0: 60.0, 1: 64.0, 2: 62.0},
        "balanced": {0: 61.0},
        "autoslim": {1: 65.5},
        "ours": {0: 63.0, 1: 66.0},
    }
    with table.open("w", newline="") as file:
        fields = ["configuration", "seed", "budget", "method", "start", "top1", "macs_ratio", "params"]
        fields += ["search_minutes", "search_trainings"]
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        for method, values in top1.items():
            for seed, value in values.items():
                taken = (20 + 2 * seed, 2 + seed) if method == "ours" else ("", "")
                values_of_row = ("c", seed, "0.5", method, "scratch", value, 0.5, 10, *taken)
                writer.writerow(dict(zip(fields, values_of_row, strict=True)))
    rows = {row["method"]: row for row in summarise(table, "c")}
    ours = rows["ours"]
    assert float(ours["ahead_of_uniform"]) == pytest.approx((3 + 2) / 2)
    assert float(ours["ahead_of_uniform_standard_error"]) == pytest.approx(0.5)
    assert (ours["ahead_of_balanced"], ours["ahead_of_balanced_standard_error"]) == ("2.000", "")
    assert (ours["ahead_of_autoslim"], ours["ahead_of_autoslim_standard_error"]) == ("0.500", "")
    assert (ours["search_minutes_mean"], ours["search_trainings_mean"]) == ("21.0", "2.50")
    assert rows["uniform"]["search_minutes_mean"] == ""
    assert rows["uniform"]["ahead_of_uniform"] == ""
    assert rows["balanced"]["ahead_of_uniform"] == "1.000"


@pytest.mark.parametrize(
    "file", sorted((ROOT / "results").glob("cifar_table*_summary.csv")), ids=lambda file: file.stem
)
def test_a_summary_that_is_kept_is_that_of_its_table(file, tmp_path):
    table = file.with_name(f"{file.stem.removesuffix('_summary')}.csv")
    copy = shutil.copy(table, tmp_path / table.name)
    (configuration,) = {row["configuration"] for row in rows(file)}
    assert summarise(copy, configuration) == rows(file)
