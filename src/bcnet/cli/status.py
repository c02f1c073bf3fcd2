"""`bcnet status` and `bcnet watch`: the state of a run in terminal and browser. Imports are light."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from bcnet.cli.endings import guard, refuse
from bcnet.run.status import as_document, read_status, status_lines

STATUS_HELP = """
Show the state of a run, its best candidate so far, and its expected end; from any terminal, also while it runs.

A run is running (a process holds its directory), stopped (the same command resumes it), failed, finished, in part
(as far as requested, for instance with --until prior) or damaged. The end is estimated from the remaining work and
the speed so far, "?" if unknown.

Examples:

  bcnet status runs/demo

  bcnet status runs/demo --json
"""
WATCH_HELP = """
Show active runs in the browser: the report of each, reloaded every few seconds, with the stages and the remaining time.
Several finished runs are compared.

The page reads run directories and writes nothing; it waits for a directory that does not exist yet. Ctrl-C ends the
page, not the runs. Needs `pip install 'bcnet[watch]'`.

Examples:

  bcnet watch runs/demo

  bcnet watch runs/half runs/third

  bcnet watch runs/demo --host 0.0.0.0
"""
_NEEDS = ("starlette", "uvicorn")
_PORT = 8150


@guard
def status(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")] = False,
) -> None:
    """Show a status; the help is `STATUS_HELP`."""
    found = read_status(run)
    typer.echo(json.dumps(as_document(found)) if as_json else "\n".join(status_lines(found)))


@guard
def watch(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than the loopback require the printed token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = _PORT,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser, too.")] = False,
) -> None:
    """Serve the page; the help is `WATCH_HELP`."""
    missing = [name for name in _NEEDS if find_spec(name) is None]
    if missing:
        refuse(
            f"`bcnet watch` needs packages that are not installed here, {', '.join(missing)}: "
            "pip install 'bcnet[watch]'"
        )
    from bcnet.watch import serve

    for run in runs:
        if run.is_file():
            refuse(f"a run directory must be a folder; {run} is a file: give the --out of a `bcnet search`")

    def on_ready(link: str) -> None:
        typer.echo(f"Watching at {link} until Ctrl-C.")
        if open_:
            typer.launch(link)

    serve(runs, host, port, on_ready)
