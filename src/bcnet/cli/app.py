"""Commands: their options, their help, and how they end."""

from __future__ import annotations

import sys

import typer

from bcnet.cli import again, baseline, profile, recipes, replay, report, results, search, status
from bcnet.cli.common import page
from bcnet.cli.endings import (
    complain,
    exit_code,
    launched_rank,
    let_the_first_speak,
    only_the_first_speaks,
    take_every_stop,
)

_HELP = """
Find the best channel widths of a convolutional network under a compute budget (BCNet, CVPR 2021).

A supernet that shares its weights among all widths is trained once; an evolutionary search scores thousands of
widths with it; the best network within the budget is trained from scratch and compared with the original and with a
uniformly narrowed one of the same cost.

A run lives in one directory. The same command on the same directory goes on where it was stopped.

Examples:

  bcnet search --model resnet_digits --data digits --budget 0.5 --out runs/demo

  bcnet search --model vgg19 --data cifar10 --budget 0.5 --out runs/vgg

  bcnet profile torchvision:resnet50

  bcnet status runs/demo

Exit codes: 0 done, 2 something is wrong with what was asked for (one message says what), 130 stopped by
Ctrl-C, 143 by SIGTERM.
"""


app = typer.Typer(
    help=page(_HELP),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)
app.command(help=page(search.HELP))(search.search)
app.command(help=page(profile.HELP))(profile.profile)
app.command(help=page(baseline.HELP))(baseline.baseline)
app.command(help=page(report.HELP))(report.report)
app.command(help=page(results.EXPORT_HELP))(results.export)
app.command(help=page(results.LATENCY_HELP))(results.latency)
app.command(help=page(again.TRAIN_HELP))(again.train)
app.command(help=page(again.EVOLVE_HELP))(again.evolve)
app.command(help=page(again.RETRAIN_HELP))(again.retrain)
app.command(help=page(recipes.HELP))(recipes.recipes)
app.command(help=page(status.HELP))(status.status)
app.command(help=page(replay.HELP))(replay.replay)

_SHARED = {"search", "baseline", "train", "evolve", "retrain"}


def main() -> None:
    """Entry point of the `bcnet` command; under torchrun that of every process."""
    if launched_rank() and not set(sys.argv[1:2]) & _SHARED:
        return  # all other commands are the work of one
    take_every_stop()
    _find_modules_here()
    try:
        with only_the_first_speaks():
            app()
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
