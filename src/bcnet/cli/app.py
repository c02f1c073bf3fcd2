"""Commands: their options, their help, and how they end."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Annotated

import typer

from bcnet.cli import again, baseline, calibrate, help, profile, recipes, report, results, search, status, watch
from bcnet.cli.common import page
from bcnet.cli.endings import (
    complain,
    exit_code,
    launched_rank,
    let_the_first_speak,
    only_the_first_speaks,
    take_every_stop,
)
from bcnet.cli.options import widened

_HELP = """
Find the best channel widths of a convolutional network under a compute budget (BCNet, CVPR 2021).

Narrow networks that start from the trained original are trained for a short while, and a model of their scores says
which come next; or, as in the paper, an evolutionary search scores thousands of widths on one supernet that shares its
weights among all. The best network within the budget is trained, and compared with the original and with a uniformly
narrowed one of the same cost.

A run lives in one directory. The same command on the same directory goes on where it was stopped.

Examples:

  bcnet search --model resnet_digits --data digits --budget 0.5 --out runs/demo

  bcnet search --model vgg19 --data cifar10 --budget 0.5 --out runs/vgg

  bcnet profile torchvision:resnet50

  bcnet status runs/demo

  bcnet watch runs/demo

Exit codes: 0 done, 2 something is wrong with what was asked for (one message says what), 130 stopped by
Ctrl-C, 143 by SIGTERM.
"""


_COMMANDS = {  # module and help of each
    "search": (search, search.HELP),
    "profile": (profile, profile.HELP),
    "calibrate": (calibrate, calibrate.HELP),
    "baseline": (baseline, baseline.HELP),
    "report": (report, report.HELP),
    "export": (results, results.EXPORT_HELP),
    "latency": (results, results.LATENCY_HELP),
    "train": (again, again.TRAIN_HELP),
    "evolve": (again, again.EVOLVE_HELP),
    "retrain": (again, again.RETRAIN_HELP),
    "recipes": (recipes, recipes.HELP),
    "status": (status, status.HELP),
    "watch": (watch, watch.HELP),
    "help": (help, help.HELP),
}


def make_app(only: str | None = None) -> typer.Typer:
    """The program, with all commands.

    `only` names the one that will be run: making the options of the others, for which torch has to be imported, is
    spared.
    """
    made = typer.Typer(
        help=page(_HELP),
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_show_locals=False,
    )
    made.callback()(_program)
    for name, (home, text) in _COMMANDS.items():
        made.command(name, help=page(text))(widened(getattr(home, _function(name)), options=only in (None, name)))
    return made


def _function(command: str) -> str:
    return "help_" if command == "help" else command  # Python has a function of that name


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"bcnet {metadata.version('bcnet')}")
        raise typer.Exit


def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the program itself; the help is `_HELP`."""


def __getattr__(name: str) -> typer.Typer:
    if name == "app":
        globals()["app"] = made = make_app()
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_COMPLETING = "_BCNET_COMPLETE"
_SHARED = {"search", "baseline", "train", "evolve", "retrain"}


def main() -> None:
    """Entry point of the `bcnet` command; under torchrun that of every process."""
    if launched_rank() and not set(sys.argv[1:2]) & _SHARED:
        return  # all other commands are the work of one
    take_every_stop()
    _find_modules_here()
    try:
        with only_the_first_speaks():
            # A shell that completes a line asks by a variable, and may want the options of any command.
            make_app(None if _COMPLETING in os.environ else next(iter(sys.argv[1:2]), ""))()
    except SystemExit as end:
        if end.code and launched_rank():
            let_the_first_speak()
        raise
    except KeyboardInterrupt as stop:
        if not launched_rank():
            complain("Stopped.")
        sys.exit(exit_code(stop))


def _find_modules_here() -> None:
    """Let `--model module:factory` name code in the current folder, behind all that is installed."""
    if "" not in sys.path:
        sys.path.append("")
