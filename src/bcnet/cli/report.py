"""`bcnet report`: the page about a run, finished or not, or about several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bcnet.cli.endings import guard, refuse

HELP = """
Write report.html of a run and show its result; of several runs, write one page that compares them.

The page needs nothing but a browser: no network, no other file. A run that is not finished gives a page about what
there is so far, and says what is missing.

Examples:

  bcnet report runs/demo

  bcnet report runs/half runs/third --out comparison.html
"""
_OUT = "comparison.html"


@guard
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[
        Path | None, typer.Option(help=f"The page that compares several runs (default: {_OUT} in this folder).")
    ] = None,
) -> None:
    """Write a report; the help is `HELP`."""
    from bcnet.report import write_comparison, write_report

    if len(runs) > 1:
        typer.echo(f"Report: {write_comparison(runs, out or Path(_OUT))}")
        return
    if out is not None:
        refuse("--out is for comparing several runs; the report of one is written into its run directory")
    written = write_report(runs[0])
    if (runs[0] / "result.json").exists():
        _show(runs[0])
    else:
        typer.echo(f"The run is not finished; what there is so far is in the report: {written}")


def _show(run: Path) -> None:
    from bcnet.cli.show import show_result
    from bcnet.run.result_file import read_result

    show_result(Console(), read_result(run), str(run))
