"""Run the action of a command with a reporter, and show its outcome."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from bcnet.cli.endings import kept_in_run, stoppable
from bcnet.errors import BCNetError

if TYPE_CHECKING:
    from bcnet.progress.base import Reporter

LOGS = ("auto", "bars", "lines", "json", "quiet")
_T = TypeVar("_T")


def carry_out(
    action: Callable[[Any], _T],
    show: Callable[[Console, _T], None],
    document: Callable[[_T], dict[str, Any]],
    *,
    out: Path,
    log: str,
    tensorboard: bool,
) -> None:
    """Run `action(reporter)` and show its outcome, or print `document` of it for machines."""
    from bcnet.progress.base import Together
    from bcnet.progress.json_lines import JsonReporter
    from bcnet.progress.tensorboard import TensorBoard

    console = Console()
    shown = make_reporter(console, log)
    reporter = Together(shown, TensorBoard(out / "tensorboard")) if tensorboard else shown
    try:
        with stoppable(lambda: kept_in_run(out)):
            outcome = action(reporter)
    except BCNetError as error:
        if isinstance(shown, JsonReporter):
            shown.tell("error", message=str(error))
        raise
    if isinstance(shown, JsonReporter):
        shown.tell("result", run=str(out), result=document(outcome))
    elif log != "quiet":
        show(console, outcome)


def make_reporter(console: Console, log: str = "auto") -> Reporter:
    """Return the reporter called `log`; "auto" shows bars in a terminal and lines elsewhere.

    Raises:
        BCNetError: an unknown reporter.
    """
    from bcnet.progress.base import Reporter
    from bcnet.progress.json_lines import JsonReporter
    from bcnet.progress.terminal import BarReporter, LineReporter, console_reporter

    if log not in LOGS:
        raise BCNetError(f"--log must be one of {', '.join(LOGS)}; got {log!r}")
    if log == "json":
        return JsonReporter(console.file)
    if log == "auto":
        return console_reporter(console)
    if log == "quiet":
        return Reporter()
    return {"bars": BarReporter, "lines": LineReporter}[log](console)
