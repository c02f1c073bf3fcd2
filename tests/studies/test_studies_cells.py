"""Cells of a study: finished ones stay, failing ones leave a log and stop nobody."""

import pytest

from studies.shared.cells import Cell, matching, run_cells
from studies.shared.provenance import rows


def cell(name, figures):
    return Cell({"name": name, "seed": 0, "note": ""}, figures)


def test_finished_cells_are_never_computed_again(tmp_path):
    out, calls = tmp_path / "x.csv", []
    cells = [cell(name, lambda name=name: calls.append(name) or {"value": len(calls)}) for name in "ab"]
    assert run_cells(cells[:1], out, tmp_path) == []
    assert run_cells(cells, out, tmp_path) == []
    assert run_cells(cells, out, tmp_path) == []
    assert calls == ["a", "b"]
    assert [(row["name"], row["value"]) for row in rows(out)] == [("a", "1"), ("b", "2")]
    assert all(row["commit"] and row["cpu"] for row in rows(out))


def test_a_failing_cell_leaves_a_log_and_the_others_go_on(tmp_path, capsys):
    out, logs = tmp_path / "x.csv", tmp_path / "logs"
    broken, good = cell("broken", lambda: 1 / 0), cell("good", lambda: {"value": 1})
    assert run_cells([broken, good], out, logs) == [broken]
    assert [row["name"] for row in rows(out)] == ["good"]
    (log,) = logs.iterdir()
    assert "ZeroDivisionError" in log.read_text()
    assert str(log) in capsys.readouterr().err
    assert run_cells([cell("broken", lambda: {"value": 2})], out, logs) == []
    assert [row["value"] for row in rows(out)] == ["1", "2"]


def test_an_interrupted_study_stops(tmp_path):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cells([cell("a", interrupted), cell("b", lambda: {})], tmp_path / "x.csv", tmp_path)


def test_cells_are_chosen_by_their_columns():
    cells = [cell(name, dict) for name in ("VGGNet", "ResNet50")]
    assert matching(cells, {}) == cells
    assert matching(cells, {"name": "vggnet", "seed": "0"}) == cells[:1]
    with pytest.raises(ValueError, match="the columns are name, seed, note"):
        matching(cells, {"network": "VGGNet"})
    with pytest.raises(ValueError, match="there are name=ResNet50, name=VGGNet"):
        matching(cells, {"name": "VGG"})


def test_logs_of_different_cells_have_different_names():
    long = "x" * 300
    names = {cell(name, dict).log_name for name in ("a/b", "a b", long + "1", long + "2")}
    assert len(names) == 4
    assert all(len(name) < 200 and "/" not in name for name in names)
