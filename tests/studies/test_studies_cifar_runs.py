"""What the runs of the CIFAR study take from each other."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from studies.cifar.__main__ import QUICK, VARIANTS, Run, Table

_TABLE = Table(QUICK, range(1), ("0.5",), (), "digits", Path("runs"), Path("table.csv"), 1, "cpu")


def _taken(run, folder):
    """The runs that the command of `run` names, where all of them are there."""
    table = replace(_TABLE, runs=folder)
    for donor in run.donors:
        table.folder(donor).mkdir()
        (table.folder(donor) / "settings.json").touch()
    words = table.command(run)
    return {Path(after).name for word, after in itertools.pairwise(words) if word == "--take-from"}


@pytest.mark.parametrize("method", [m for m, variant in VARIANTS.items() if variant.has_supernet])
def test_from_scratch_a_search_on_a_supernet_is_that_from_the_original(method, tmp_path):
    taken = _taken(Run(0, "0.5", method), tmp_path)
    assert Run(0, "0.5", method, "original").name in taken
    assert Run(0, "0.5", "uniform").name in taken  # whose network from scratch it needs


@pytest.mark.parametrize("method", ["uniform", "balanced", "ours, small effort"])
def test_what_starts_from_the_original_is_no_network_from_scratch(method, tmp_path):
    assert not any("original" in name for name in _taken(Run(0, "0.5", method), tmp_path))


@pytest.mark.parametrize("method", ["magnitude", "taylor"])
def test_a_pruner_prunes_the_original_of_the_other_seed(method, tmp_path):
    run = Run(2, "0.5", method, "original, again")
    command = _TABLE.command(run)
    assert command[:2] == ["baseline", method]
    assert command[command.index("--seed") + 1] == "102"
    assert command[command.index("--final-from") + 1] == "original"
    assert Run(2, "0.5", "uniform", "original, again").name in _taken(run, tmp_path)


def test_found_widths_are_trained_again_and_not_searched_again(monkeypatch):
    monkeypatch.setattr(Table, "_first_widths", lambda *_: "3,5")
    run = Run(2, "0.5", "random", "original, again")
    command = _TABLE.command(run)
    assert command[:2] == ["retrain", str(_TABLE.folder(Run(2, "0.5", "uniform", "original, again")))]
    assert command[command.index("--widths") + 1] == "3,5"


def test_no_run_takes_from_itself(tmp_path):
    run = Run(0, "0.5", "ours, paper", "original")
    assert run.name not in _taken(run, tmp_path)
