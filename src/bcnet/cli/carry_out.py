"""Carrying out a command that runs stages: who hears of it, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from bcnet.cli.common import MACHINE
from bcnet.cli.endings import stoppable
from bcnet.errors import BCNetError

_T = TypeVar("_T")
Log = Annotated[
    str, typer.Option(help="Progress: auto, bars, lines, json (a line an event) or quiet.", rich_help_panel=MACHINE)
]
WithTensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Write scalars to OUT/tensorboard.", rich_help_panel=MACHINE)
]


def carry_out(
    action: Callable[[Any], _T],
    show: Callable[[Console, _T], None],
    document: Callable[[_T], dict[str, Any]],
    *,
    out: Path,
    log: str,
    tensorboard: bool,
) -> None:
    """Run `action(reporter)` and show its outcome, for machines as `document` of it."""
    from bcnet.cli.machine import JsonReporter
    from bcnet.cli.reporters import make_reporter
    from bcnet.pipeline import TensorBoard, Together

    console = Console()
    shown = make_reporter(console, log)
    reporter = Together(shown, TensorBoard(out / "tensorboard")) if tensorboard else shown
    try:
        with stoppable(out):
            outcome = action(reporter)
    except BCNetError as error:
        if isinstance(shown, JsonReporter):
            shown.tell("error", message=str(error))
        raise
    if isinstance(shown, JsonReporter):
        shown.tell("result", run=str(out), result=document(outcome))
    elif log != "quiet":
        show(console, outcome)
