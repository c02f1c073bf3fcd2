"""`bcnet status`: where a run is, what it has found, and when it will end. Imports nothing that takes time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bcnet.cli.endings import guard
from bcnet.run.status import as_document, read_status, status_lines

HELP = """
Say where a run is, what it has found so far, and when it will end; from any terminal, also while it runs.

A run is running (a process holds its directory), stopped (the same command goes on with it), failed, finished, in part
(what was asked for is done, as with --until prior, and more can go on from it) or damaged. The end is forecast from the
work ahead and the speed so far, "?" where nothing is known yet.

Examples:

  bcnet status runs/demo

  bcnet status runs/demo --json
"""


@guard
def status(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")] = False,
) -> None:
    """Show a status; the help is `HELP`."""
    found = read_status(run)
    typer.echo(json.dumps(as_document(found)) if as_json else "\n".join(status_lines(found)))
