"""The program: its commands, their help, and exit codes."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bcnet.cli import calibrate, help, profile, recipes, results, search, status
from bcnet.cli.common import page
from bcnet.cli.endings import (
    complain,
    exit_code,
    launched_rank,
    silence_other_ranks,
    take_every_stop,
    wait_for_rank_zero,
)

_HELP = """
Find the best channel widths of a convolutional network under a compute budget (BCNet, CVPR 2021).

Narrow networks that start from the trained original are trained briefly, and a model of their scores proposes the next
ones. Alternatively, as in the paper, an evolutionary search scores thousands of widths on one supernet that shares its
weights between all of them. The best network within the budget is trained, and compared with the original and with a
uniformly narrowed network of the same cost.

A run lives in one directory. The same command on the same directory resumes it.

Examples:

  bcnet search --model resnet_digits --data digits --budget 0.25 --out runs/demo

  bcnet search --model vgg19 --data cifar10 --budget 0.5 --out runs/vgg

  bcnet profile torchvision:resnet50

  bcnet status runs/demo

  bcnet watch runs/demo

Exit codes: 0 done, 2 invalid request (one message says why), 130 stopped by
Ctrl-C, 143 by SIGTERM.
"""


_COMMANDS = {  # module and help of each
    "search": (search, search.HELP),
    "profile": (profile, profile.HELP),
    "calibrate": (calibrate, calibrate.HELP),
    "report": (results, results.REPORT_HELP),
    "export": (results, results.EXPORT_HELP),
    "latency": (results, results.LATENCY_HELP),
    "recipes": (recipes, recipes.HELP),
    "status": (status, status.STATUS_HELP),
    "watch": (status, status.WATCH_HELP),
    "help": (help, help.HELP),
}


class _Command(TyperCommand):
    """A command that answers `--macs 0.5` with `--budget`, if it has that option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            from bcnet.costs import MEASURES

            unknown = getattr(error, "option_name", "").lstrip("-")
            if unknown in MEASURES and any(option.name == "budget" for option in self.params):
                error.possibilities = [f"--budget {unknown}=..."]  # type: ignore[attr-defined]
            raise


def make_app() -> typer.Typer:
    """Return the program with all commands."""
    made = typer.Typer(
        help=page(_HELP),
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_show_locals=False,
    )
    made.callback()(_program)
    for name, (home, text) in _COMMANDS.items():
        made.command(name, cls=_Command, help=page(text))(getattr(home, _function(name)))
    return made


def _function(command: str) -> str:
    return "help_" if command == "help" else command  # `help` is a Python builtin


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"bcnet {metadata.version('bcnet')}")
        raise typer.Exit


def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the program itself; the help is `_HELP`."""


def __getattr__(name: str) -> typer.Typer:
    if name == "app":
        globals()["app"] = made = make_app()
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_SHARED = {"search"}


def main() -> None:
    """Entry point of the `bcnet` command; under torchrun, of every process."""
    if launched_rank() and not set(sys.argv[1:2]) & _SHARED:
        return  # all other commands run on rank 0 only
    take_every_stop()
    _find_modules_here()
    try:
        with silence_other_ranks():
            make_app()()
    except SystemExit as end:
        if end.code and launched_rank():
            wait_for_rank_zero()
        raise
    except KeyboardInterrupt as stop:
        if not launched_rank():
            complain("Stopped.")
        sys.exit(exit_code(stop))


def _find_modules_here() -> None:
    """Let `--model module:factory` import code from the current folder, after all installed packages."""
    if "" not in sys.path:
        sys.path.append("")
