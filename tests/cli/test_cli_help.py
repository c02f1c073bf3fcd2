"""Help on topics, and completion in the shell."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bcnet.cli.app import app
from bcnet.cli.help import TOPICS
from bcnet.export.formats import FORMATS
from bcnet.export.latency import BACKENDS
from bcnet.latency import ENGINES
from bcnet.methods import METHODS

ROOT = Path(__file__).parents[2]


def run(*words):
    return CliRunner().invoke(app, words)


def test_all_topics_are_listed_by_their_titles():
    shown = run("help")
    assert shown.exit_code == 0
    for topic in TOPICS:
        title = (ROOT / "docs" / f"{topic}.md").read_text().partition("\n")[0].removeprefix("# ")
        assert f"{topic} " in shown.output
        assert title in shown.output


def test_the_methods_and_their_fields_are_a_page():
    shown = run("help", "methods").output
    for name, kind in METHODS.items():
        assert f"## {name}\n" in shown
        assert all(f"- `{field}`: " in shown for field in kind.model_fields)
    assert "methods " in run("help").output


@pytest.mark.parametrize("topic", ["own_data", "own-data", "Own data", "own_data.md"])
def test_a_topic_is_its_page(topic):
    assert run("help", topic).output == (ROOT / "docs" / "own_data.md").read_text()


def test_an_unknown_topic_names_the_nearest():
    wrong = run("help", "budget")
    assert wrong.exit_code == 2
    assert "did you mean budgets?" in wrong.stderr


def test_the_wheel_takes_the_pages_along():
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert hatch["force-include"] == {f"docs/{topic}.md": f"bcnet/help/{topic}.md" for topic in TOPICS}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        pytest.param("bcnet wa", {"watch"}, marks=pytest.mark.slow),
        ("bcnet re", {"report", "recipes"}),
        ("bcnet search --method auto", {"autoslim"}),
        ("bcnet search --effort ", {"small", "medium", "large"}),
        ("bcnet search --num", {"--num-choices"}),
        pytest.param("bcnet watch --p", {"--port"}, marks=pytest.mark.slow),
    ],
)
def test_a_shell_completes_commands_and_options(line, offered):
    asked = {"_BCNET_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    words = [sys.executable, "-c", "import sys; sys.argv = ['bcnet']; from bcnet.cli import main; main()"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | asked)
    assert set(done.stdout.split()) == offered


@pytest.mark.parametrize(
    ("command", "names"), [("calibrate", ENGINES), ("latency", [*BACKENDS, "all"]), ("export", FORMATS)]
)
def test_options_name_every_engine_and_format(command, names):
    said = set(re.findall(r"[a-z]\w+(?::int8)?", run(command, "--help").output))
    assert set(names) <= said
