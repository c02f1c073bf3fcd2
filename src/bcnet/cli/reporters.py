"""Progress as `--log` wants it."""

from __future__ import annotations

from rich.console import Console

from bcnet.errors import BCNetError
from bcnet.progress.base import Reporter
from bcnet.progress.json_lines import JsonReporter
from bcnet.progress.terminal import BarReporter, LineReporter, console_reporter

LOGS = ("auto", "bars", "lines", "json", "quiet")


def make_reporter(console: Console, log: str = "auto") -> Reporter:
    """The reporter called `log`; "auto" gives bars where the console is a terminal, lines where it is not.

    Raises:
        BCNetError: no such reporter.
    """
    if log not in LOGS:
        raise BCNetError(f"--log is one of {', '.join(LOGS)}; got {log!r}")
    if log == "json":
        return JsonReporter(console.file)
    if log == "auto":
        return console_reporter(console)
    return {"bars": BarReporter, "lines": LineReporter}[log](console) if log != "quiet" else Reporter()
