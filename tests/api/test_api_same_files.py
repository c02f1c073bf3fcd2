"""A call in Python and a command leave the same files behind."""

import json

import pytest
from typer.testing import CliRunner

import bcnet
from bcnet.cli.app import app

OPTIONS = ["--budget", "0.5", "--threads", "1", "--epochs", "1", "--method"]
OPTIONS += ["bcnet:population=2,generations=1"]


@pytest.mark.slow
def test_search_in_python_and_on_the_command_line(tmp_path):
    words = ["search", "--model", "resnet_digits", "--data", "digits", *OPTIONS, "--out", str(tmp_path / "command")]
    outcome = CliRunner().invoke(app, words)
    assert outcome.exit_code == 0, outcome.output
    bcnet.search(
        "resnet_digits",
        "digits",
        budget=bcnet.Budget(macs=0.5),
        run_dir=tmp_path / "python",
        training={"epochs": 1},
        method=bcnet.BCNet(population=2, generations=1),
        options={"threads": 1},
    )
    files = [
        sorted(p.relative_to(folder) for p in folder.rglob("*"))
        for folder in (tmp_path / "command", tmp_path / "python")
    ]
    assert files[0] == files[1]
    for name in ("settings.json", "prior.json", "rescored.json", "architecture.json", "space.json"):
        assert (tmp_path / "command" / name).read_bytes() == (tmp_path / "python" / name).read_bytes()
    results = [json.loads((tmp_path / which / "result.json").read_text()) for which in ("command", "python")]
    for result in results:
        del result["seconds"], result["sha256"]
    assert results[0] == results[1]
