"""Runs as YAML files, and every setting documented where it is defined."""

import json
import re

import pytest
import yaml
from typer.testing import CliRunner

from bcnet.cli import parse
from bcnet.cli.app import app
from bcnet.costs import Budget
from bcnet.errors import BudgetError
from bcnet.methods import METHODS
from bcnet.run.settings import RunOptions, Settings, SpaceSettings

HEAD = "model: resnet_digits\ndata: digits\nout: x\nbudget: 0.5"
SEARCH = ["search", "--model", "resnet_digits", "--data", "digits", "--budget", "0.5", "--threads", "1"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], terminal_width=200)


@pytest.mark.parametrize("part", [Settings, SpaceSettings, RunOptions, *METHODS.values()])
def test_every_setting_says_what_it_is(part):
    for name, field in part.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


@pytest.mark.slow
def test_a_printed_file_makes_the_same_run_and_options_come_first(tmp_path):
    changes = ["--epochs", "2", "--set", "lr=0.2", "--method", "bcnet:population=3,generations=2", "--num-choices", "4"]
    printed = run(*SEARCH, *changes, "--ignore", "features.8", "--out", tmp_path / "run", "--print-settings")
    assert printed.exit_code == 0, printed.output
    document = yaml.safe_load(printed.stdout)
    assert document["budget"] == {"macs": 0.5}
    assert (document["method"]["name"], document["method"]["population"]) == ("bcnet", 3)
    assert document["training"]["lr"] == 0.2
    assert document["space"]["ignore"] == ["features.8"]
    file = tmp_path / "run.yaml"
    file.write_text(printed.stdout)
    assert not (tmp_path / "run").exists()
    again = run("search", file, "--print-settings")
    assert again.stdout == printed.stdout
    changed = yaml.safe_load(
        run(
            "search", file, "--budget", "macs=0.4,params=0.5", "--epochs", "1", "--seed", "5", "--print-settings"
        ).stdout
    )
    assert changed["budget"] == {"macs": 0.4, "params": 0.5}
    assert (changed["training"]["epochs"], changed["seed"]) == (1, 5)
    ended = run("search", file, "--epochs", "1", "--method", "bcnet:population=3,generations=1")
    assert ended.exit_code == 0, ended.output
    stored = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert (stored["method"]["population"], stored["training"]["lr"]) == (3, 0.2)


@pytest.mark.slow
def test_a_method_may_be_a_text_in_a_file(tmp_path):
    file = tmp_path / "run.yaml"
    head = "model: resnet_digits\ndata: digits\nbudget: 0.5\nout: somewhere\n"
    file.write_text(f"{head}method: trainings:effort=small\n")
    small = yaml.safe_load(run("search", file, "--print-settings").stdout)["method"]
    large = yaml.safe_load(run("search", file, "--effort", "large", "--print-settings").stdout)["method"]
    assert (small["effort"], large["effort"]) == ("small", "large")
    assert small["networks"] < large["networks"]
    file.write_text(head)
    assert yaml.safe_load(run("search", file, "--print-settings").stdout)["method"]["effort"] == "medium"


def test_training_in_a_file_may_be_changes_or_a_recipes_name(tmp_path):
    def printed(training, *options):
        file = tmp_path / "run.yaml"
        file.write_text(f"training: {training}\n{HEAD}")
        outcome = run("search", file, "--print-settings", *options)
        assert outcome.exit_code == 0, outcome.output
        return yaml.safe_load(outcome.stdout)["training"]

    usual = printed("{epochs: 5}")
    assert usual["epochs"] == 5
    assert printed("digits") == {**usual, "epochs": printed("digits")["epochs"]}
    assert printed("{epochs: 5, lr: 0.3}", "--epochs", "2", "--set", "momentum=0.5") == {
        **usual, "epochs": 2, "lr": 0.3, "momentum": 0.5
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a list", "a run file must be a mapping of settings to values; .* holds a list"),
        ("model: [", "cannot be read"),
        ("speed: 3", "unknown key 'speed': the keys are model, data"),
        (f"method: {{name: bcnet, speed: 3}}\n{HEAD}", "speed"),
        ("loss: mine.loss", "unknown key 'loss'"),
        ("budget: {speed: 3}", "budget limits macs, params, memory, size, latency, arena, flash; got speed"),
        ("budget: half", "a limit on macs must be a ratio such as 0.5"),
        (f"method: trainings:effort=huge\n{HEAD}", "'effort' must be 'small', 'medium' or 'large'; got 'huge'"),
        (f"method: {{name: mine}}\n{HEAD}", "unknown method 'mine'"),
        (f"space: 3\n{HEAD}", "space must be a mapping of settings to values; got 3"),
        (f"training: {{lr: 0}}\n{HEAD}", "'lr' must be greater than 0"),
        (f"training: {{lr: 0, batch_size: 8, epochs: 1}}\n{HEAD}", "training: 'lr' must be greater than 0"),
        (f"training: {{speed: 3}}\n{HEAD}", "unknown key 'speed'"),
        (f"training: resnet\n{HEAD}", "a recipe must be a .yaml file or one of digits, .*; got 'resnet'"),
        ("model: resnet_digits\ndata: digits", "a search needs a run directory: give --out"),
        ("model: resnet_digits\nout: somewhere", "a search needs data: give --data, or a FILE of settings"),
        ("model: resnet_digits\ndata: digits\nout: somewhere", "a search needs a budget; got none"),
        (f"method: bcnet:population=many\n{HEAD}", "'population' must be"),
    ],
)
def test_a_wrong_file_ends_with_one_message(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(text)
    outcome = run("search", "run.yaml")
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("Error: ")
    assert outcome.stderr.count("\n") == 1
    assert re.search(message, outcome.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_a_budget_names_its_measures():
    assert parse.budget("macs=0.5,params=2M", None) == Budget(macs=0.5, params=2_000_000)
    assert parse.budget("0.5, params=0.25", None) == Budget(macs=0.5, params=0.25)
    for wrong in ("speed=3", "macs=0.5,macs=0.4", "macs=0.5,0.4"):
        with pytest.raises(BudgetError, match="limits each of macs, params, memory, size, latency, arena, flash once"):
            parse.budget(wrong, None)
    with pytest.raises(BudgetError, match="parameters must be limited once"):
        parse.budget("params=0.4", "0.5")
