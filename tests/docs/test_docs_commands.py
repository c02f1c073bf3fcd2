"""The commands of the pages and the help can be typed: they, their options, settings, scripts and extras exist."""

import re
import shlex
import tomllib

import pages
import pytest
import typer

from bcnet.cli import parse
from bcnet.cli.app import app
from bcnet.train.recipe import Recipe

PROGRAM = typer.main.get_command(app)
COMMANDS = PROGRAM.commands
OPTIONS = {f for command in (PROGRAM, *COMMANDS.values()) for o in command.params for f in o.opts} | {"--help"}
SCRIPTS = [script for folder in ("studies", "benchmarks") for script in (pages.ROOT / folder).rglob("*.py")]
STARTER = {"--max-restarts", "--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint"}  # of torchrun
COMMAND = re.compile(r"^(?:torchrun .*-m )?bcnet (?=[a-z])")


def shown(page):
    """The words after `bcnet` of every command that a block of the page shows."""
    return [shlex.split(COMMAND.sub("", line), comments=True) for line in pages.lines(page) if COMMAND.match(line)]


def mentioned(page):
    """The same for commands within sentences, which may leave out what does not matter there."""
    return [shlex.split(COMMAND.sub("", code)) for code in pages.inline(page) if COMMAND.match(code)]


def of_help():
    """The same for the examples in the help of the commands, without remarks in brackets and files written to."""
    texts = [app.info.help, *(command.help for command in COMMANDS.values())]
    examples = [line for text in texts for line in text.splitlines() if COMMAND.match(line)]
    return [shlex.split(COMMAND.sub("", re.sub(r" (\(.*\)|> .*)$", "", line))) for line in examples]


ALL = [pytest.param(words, id=f"{page.stem}-{' '.join(words)[:50]}") for page in pages.PAGES for words in shown(page)]
ALL += [pytest.param(words, id=f"help-{' '.join(words)[:50]}") for words in of_help()]
WITH_MENTIONS = [page for page in pages.PAGES if mentioned(page)]


def test_help_shows_most_commands():
    assert len({words[0] for words in of_help()}) > len(COMMANDS) / 2


def test_the_pages_show_every_command():
    assert {words[0] for page in pages.PAGES for words in shown(page) + mentioned(page)} == set(COMMANDS)


@pytest.mark.parametrize("words", ALL)
def test_commands_in_blocks_can_be_typed(words):
    command = COMMANDS[words[0]]
    if "..." in words:
        assert options_exist(words)
        return
    given = command.make_context(words[0], words[1:]).params
    if "budget" in given:
        limits = given["budget"], given.get("params_budget")
        own = str(given.get("method")).startswith("given:")  # whose cost is the budget
        assert any(limits) or command.name != "search" or given["file"] is not None or own
        if any(limits):
            parse.budget(*limits)
    if given.get("set_"):
        settings_exist(given["set_"])


@pytest.mark.parametrize("page", WITH_MENTIONS, ids=pages.name)
def test_commands_in_sentences_have_their_options(page):
    assert all(options_exist(words) for words in mentioned(page))


def options_exist(words):
    """Whether the command has the options; an unknown one is an error of the command line's own."""
    if "--help" in words:
        return words[0] in COMMANDS
    command = COMMANDS[words[0]]
    command.make_parser(typer.Context(command)).parse_args(words[1:])
    return True


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_options_in_sentences_exist(page):
    scripts = "\n".join(script.read_text(encoding="utf-8") for script in SCRIPTS)
    for code in pages.inline(page):
        if code.startswith("pip "):
            continue
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", code):
            assert flag in OPTIONS | STARTER or re.search(rf"{flag}\b", scripts), f"nothing takes {flag}, in `{code}`"
        settings_exist(re.findall(r"--set (\S+=\S+)", code))


def settings_exist(changes):
    """Whether `--set` takes them: `key` and `...` stand for anything."""
    for change in changes:
        key = change.partition("=")[0]
        if key == "key":
            continue
        assert key.partition(".")[0] in Recipe.model_fields, change
        if "..." not in change:
            Recipe(lr=0.1, batch_size=8, epochs=1).with_changes(parse.changes([f"{key}={change.partition('=')[2]}"]))


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_scripts_targets_and_extras_exist(page):
    shown = "\n".join((*pages.lines(page), *pages.inline(page)))
    for script in re.findall(r"(?:python|--nproc-per-node \d+) ((?:studies|benchmarks|examples)/\S+\.py)", shown):
        assert (pages.ROOT / script).is_file(), script
    targets = re.findall(r"^([\w-]+):", (pages.ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"^make ([\w-]+)", shown, re.MULTILINE)) <= set(targets)
    extras = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    asked = re.findall(r"pip install (?:-c constraints.txt )?'(?:bcnet|\.)\[([\w,]+)\]'", shown)
    assert {extra for group in asked for extra in group.split(",")} <= set(extras)
