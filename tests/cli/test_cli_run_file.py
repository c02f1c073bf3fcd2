"""Settings said once: options, run files, `settings.json` and the Python signature are made from the same fields."""

import inspect
import json
import re
import typing

import pytest
import yaml
from tiny_job import tiny_search
from typer.testing import CliRunner

import bcnet
from bcnet.cli import parse
from bcnet.cli.app import app, make_app
from bcnet.costs import Budget
from bcnet.errors import BudgetError, RecipeError
from bcnet.run.options import Options, SearchOptions
from bcnet.run.settings import SECTION_OF, SECTIONS, Settings, flattened, make_settings

NOT_OPTIONS = {"model", "data", "task", "image_size", "limits", "loss", "pretrained", "own_stages", "own_score"}
OTHERWISE = {"supernet", "final", "score", "processes", "widths"}  # recipes are given by recipe= and changes=
SEARCH = ["search", "--model", "resnet_digits", "--data", "digits", "--budget", "0.5", "--threads", "1"]


def plain(kind):
    """A type as text, however its being optional was written."""
    return re.sub(r"typing.Optional\[(.*)\]$", r"\1 | None", kind.__name__ if isinstance(kind, type) else str(kind))


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], terminal_width=200)


def test_every_setting_is_in_one_section_and_says_what_it_is():
    assert set(SECTION_OF) == set(Settings.model_fields)
    assert sum(len(part.model_fields) for part in SECTIONS) == len(SECTION_OF), "names are unique over all sections"
    for name, part in SECTION_OF.items():
        text = part.model_fields[name].description
        assert text, name
        assert text.endswith("."), name


def test_the_typed_options_of_python_are_the_settings():
    assert set(Options.__annotations__) == set(SECTION_OF) - NOT_OPTIONS - OTHERWISE
    assert set(SearchOptions.__annotations__) < set(Options.__annotations__)
    types = typing.get_type_hints(Options)
    for name, kind in types.items():
        setting = typing.get_type_hints(SECTION_OF[name])[name]
        if name not in ("searcher", "ignore", "only"):  # objects, and any sequence
            assert plain(kind) == plain(setting), name


@pytest.mark.parametrize("call", [bcnet.search, bcnet.train_supernet, bcnet.evolve, bcnet.retrain, bcnet.baseline])
def test_no_call_takes_anything_untyped(call):
    for parameter in inspect.signature(call).parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter
        assert "Any" not in str(parameter.annotation).replace("Mapping[str, Any]", ""), parameter


def test_an_unknown_setting_is_named_with_the_nearest_real_one(tmp_path):
    with pytest.raises(RecipeError, match=r"unknown key 'populaton': did you mean 'population'\? The keys are model, "):
        tiny_search(tmp_path / "run", populaton=4)
    with pytest.raises(RecipeError, match="unknown key 'nonsense': the keys are model, "):
        tiny_search(tmp_path / "run", nonsense=1)


def test_settings_by_section_are_read_as_they_were_written():
    recipe = bcnet.load_recipe("digits")
    values = {"model": "m", "data": "d", "limits": {"macs": 0.5}, "supernet": recipe, "final": recipe}
    settings = make_settings(**values, population=7, min_ratio=0.25, score="loss", threads=3, widths=(3, 4))
    document = settings.to_document()
    assert document["search"]["population"] == 7
    assert document["supernet"]["recipe"]["lr"] == recipe.lr
    assert {part.section for part in SECTIONS} - {""} <= set(document)
    assert Settings.from_document(json.loads(json.dumps(document))) == settings
    assert flattened(document)["min_ratio"] == 0.25


def test_every_option_of_a_setting_has_the_settings_line():
    shown = run("search", "--help").output
    words = " ".join(shown.replace("│", " ").split())
    for name in ("num_choices", "effective_widths", "population", "tune_steps", "finalist_steps", "layout"):
        assert f"--{name.replace('_', '-')}" in words
        assert SECTION_OF[name].model_fields[name].description.removesuffix(".") in words
        assert SECTION_OF[name].title in words
    for name in ("own_score", "pretrained_digest", "own_stages", "limits"):
        assert f"--{name.replace('_', '-')}" not in words


def test_a_program_for_one_command_knows_the_others_by_their_help():
    light = CliRunner().invoke(make_app("status"), ["--help"], terminal_width=200).output
    assert light == CliRunner().invoke(app, ["--help"], terminal_width=200).output


def test_a_printed_file_makes_the_same_run_and_options_come_first(tmp_path):
    changes = [
        "--epochs",
        "2",
        "--set",
        "final.lr=0.2",
        "--population",
        "3",
        "--generations",
        "2",
        "--num-choices",
        "4",
    ]
    printed = run(*SEARCH, *changes, "--ignore", "features.8", "--out", tmp_path / "run", "--print-settings")
    assert printed.exit_code == 0, printed.output
    document = yaml.safe_load(printed.stdout)
    assert document["budget"] == {"macs": 0.5}
    assert document["search"]["population"] == 3
    assert document["final"]["recipe"]["lr"] == 0.2
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
    assert (changed["supernet"]["recipe"]["epochs"], changed["final"]["recipe"]["epochs"], changed["seed"]) == (1, 1, 5)
    assert changed["search"] == document["search"]
    ended = run("search", file, "--epochs", "1", "--generations", "1")
    assert ended.exit_code == 0, ended.output
    stored = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert (stored["search"]["population"], stored["final"]["recipe"]["lr"]) == (3, 0.2)


@pytest.mark.slow
def test_an_effort_comes_before_what_a_file_says_of_the_search_and_may_be_in_one(tmp_path):
    file = tmp_path / "run.yaml"
    asked = (*SEARCH, "--effort", "small", "--epochs", "20", "--out", tmp_path / "run", "--print-settings")
    assert yaml.safe_load(run(*asked).stdout)["final"]["final_from"] == "original"
    printed = run(*asked, "--final-from", "scratch")
    file.write_text(printed.stdout)
    small = yaml.safe_load(printed.stdout)["baseline"]
    large = yaml.safe_load(run("search", file, "--effort", "large", "--print-settings").stdout)["baseline"]
    assert (small["random_epochs"], large["random_epochs"]) == (2, 6)
    assert small["random_networks"] < large["random_networks"]
    file.write_text("effort: medium\nmodel: resnet_digits\ndata: digits\nbudget: 0.5\nout: somewhere\n")
    assert yaml.safe_load(run("search", file, "--print-settings").stdout)["scoring"]["scorer"] == "trainings"


def test_a_preset_comes_before_what_a_file_says(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(run(*SEARCH, "--out", tmp_path / "run", "--print-settings").stdout)
    assert yaml.safe_load(file.read_text())["search"]["tournament"] != "rank"
    paper = yaml.safe_load(run("search", file, "--preset", "paper", "--print-settings").stdout)
    assert (paper["search"]["tournament"], paper["prior"]["tightened"]) == ("rank", False)
    refused = run("search", file, "--preset", "paper", "--tournament", "score", "--print-settings")
    assert refused.exit_code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a list", "a run file is a mapping of settings to values; .* holds a list"),
        ("model: [", "cannot be read"),
        ("speed: 3", "unknown key 'speed': --print-settings shows the keys"),
        ("search: {speed: 3}", "unknown key 'speed'"),
        ("loss: mine.loss", "unknown key 'loss'"),
        ("budget: {speed: 3}", "budget limits macs, params, memory, size, latency; got speed"),
        ("budget: half", "a limit on macs is a ratio such as 0.5"),
        ("effort: huge\nmodel: resnet_digits\ndata: digits\nout: x\nbudget: 0.5", "effort is one of small, medium"),
        ("supernet: {recipe: {lr: 0}}", "supernet.recipe: 'lr' must be greater than 0"),
        ("model: resnet_digits\ndata: digits", "a search needs a run directory: give --out"),
        ("model: resnet_digits\nout: somewhere", "a search needs a data: give --data, or a FILE that says it"),
        ("model: resnet_digits\ndata: digits\nout: somewhere", "a search needs a budget; got none"),
        ("search: {population: many}\nmodel: resnet_digits\ndata: digits\nout: x\nbudget: 0.5", "'population' must be"),
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
        with pytest.raises(BudgetError, match="limits each of macs, params, memory, size, latency once"):
            parse.budget(wrong, None)
    with pytest.raises(BudgetError, match="parameters are limited once"):
        parse.budget("params=0.4", "0.5")
