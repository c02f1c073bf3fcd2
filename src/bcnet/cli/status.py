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
Say where a run is, what it has found so far, and when it will end; from any terminal, also while it runs.

A run is running (a process holds its directory), stopped (the same command goes on with it), failed, finished, in part
(what was asked for is done, as with --until prior, and more can go on from it) or damaged. The end is forecast from the
work ahead and the speed so far, "?" where nothing is known yet.

Examples:

  bcnet status runs/demo

  bcnet status runs/demo --json
"""
WATCH_HELP = """
Show runs in the browser while they go on: the report of each, loaded again every few seconds, with the stages and the
time left. Several finished runs are compared.

The page reads run directories and writes nothing; a directory that does not exist yet is waited for. Ctrl-C ends the
page, and no run. Needs `pip install 'bcnet[watch]'`.

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
        str, typer.Option(help="Address to listen on; any but this machine's own needs the token that is printed.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes one that is free.", min=0, max=65535)] = _PORT,
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
            refuse(f"a run directory is a folder; {run} is a file: give the --out of a `bcnet search`")

    def on_ready(link: str) -> None:
        typer.echo(f"Watching at {link} until Ctrl-C.")
        if open_:
            typer.launch(link)

    serve(runs, host, port, on_ready)
