"""`bcnet status`: where a run is, what it has found, and when it will end. Imports nothing that takes time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from bcnet.cli.endings import guarded
from bcnet.run.status import StageStatus, Status, as_document, read_status

HELP = """
Say where a run is, what it has found so far, and when it will end; from any terminal, also while it runs.

A run is running (a process holds its directory), stopped (the same command goes on with it), failed, finished, in part
(what was asked for is done, as after bcnet train, and more can go on from it) or damaged. The end is forecast from the
work ahead and the speed so far, "?" where nothing is known yet.

Examples:

  bcnet status runs/demo

  bcnet status runs/demo --json
"""

_GOING_ON = {
    "stopped": ": the same command goes on with it",
    "failed": ": the same command goes on with it",
    "in part": ": what was asked for is done, and more can go on from it",
}


@guarded
def status(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")] = False,
) -> None:
    """Show a status; the help is `HELP`."""
    found = read_status(run)
    typer.echo(json.dumps(as_document(found)) if as_json else "\n".join(_lines(found)))


def _lines(found: Status) -> Iterator[str]:
    yield _headline(found)
    if found.settings:
        s = found.settings
        yield f"{s.get('model')} on {s.get('data')}, budget {_budget(found)}, seed {s.get('seed')}"
    for stage in found.stages:
        yield f"  {_stage(stage, found)}"
    if found.evaluations is not None:
        yield _found(found)
    if found.result:
        yield "Test: " + ", ".join(
            f"{name} {figures['headline']} at {figures['macs_ratio']:.3f} of the MACs"
            for name, figures in found.result.items()
        )
    if found.state == "running":
        yield f"Ends {_when(found.ends)}."
    if found.message:
        yield f"Error: {found.message}"
    yield from (f"Problem: {problem}" for problem in found.problems)


def _headline(found: Status) -> str:
    if found.state == "empty":
        return f"{found.folder}: nothing has been started here"
    place = f" on {found.host}" if found.host else ""
    who = f" (process {found.pid}{place})" if found.pid else ""
    since = "" if found.since is None else f" since {datetime.fromtimestamp(found.since):%Y-%m-%d %H:%M:%S}"
    return f"{found.folder}: {found.state}{who}{since}{_GOING_ON.get(found.state, '')}"


def _budget(found: Status) -> str:
    units = {"macs": "MACs", "params": "parameters"}
    given = [(units.get(key, f"of {key}"), limit) for key, limit in found.settings.get("limits", {}).items()]
    return " and ".join(f"{v:g}x {unit}" if isinstance(v, float) else f"{v:,} {unit}" for unit, v in given)


def _stage(stage: StageStatus, found: Status) -> str:
    name = f"{stage.record.name:<{_longest(found)}}"
    record = stage.record
    if stage.state != "at hand":
        begun = f"{record.done:,} of {record.total:,} {record.unit}" if record.done else "to come"
        return f"{name} {'finished' if stage.state == 'finished' else begun}"
    share = f" ({100 * record.done / record.total:.0f} %)" if record.total else ""
    left = "?" if found.stage_left is None else timedelta(seconds=round(found.stage_left))
    detail = f", {record.detail}" if record.detail else ""
    return f"{name} {record.done:,} of {record.total:,} {record.unit}{share}, {left} left{detail}"


def _longest(found: Status) -> int:
    return max(len(stage.record.name) for stage in found.stages)


def _found(found: Status) -> str:
    if found.best is None:
        return f"Found so far: {found.evaluations:,} candidates, none within the budget yet"
    score = f"{found.best.score:.4f} nats" if found.settings.get("score") == "loss" else f"{found.best.score:.2f} %"
    ratio = "" if found.best_ratio is None else f" ({found.best_ratio:.3f} of the original)"
    widths = ",".join(map(str, found.best.widths))
    return (
        f"Found so far: {found.evaluations:,} candidates, the best {score} at {found.best.macs:,} MACs"
        f"{ratio}, {found.best.params:,} parameters: {widths}"
    )


def _when(ends: float | None) -> str:
    if ends is None:
        return "? (too little measured yet)"
    left = timedelta(seconds=round(max(0.0, ends - time.time())))
    return f"in about {left}, at {datetime.fromtimestamp(ends):%Y-%m-%d %H:%M:%S}"
