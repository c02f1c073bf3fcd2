"""What the page asks for, again and again: where a run is, and what is new since the last time. Nothing is written."""

from __future__ import annotations

import math
import os
import platform
import time
from pathlib import Path
from typing import Any

import psutil

from bcnet.display import size
from bcnet.errors import BCNetError, RunError
from bcnet.progress.record import CurveRecord, read_record
from bcnet.run.directory import read_settings
from bcnet.run.evaluations import Evaluated, evaluated_from
from bcnet.run.finished import NETWORKS
from bcnet.run.score import score_text
from bcnet.run.settings import Settings
from bcnet.run.status import Status, as_document, read_status
from bcnet.watch.charts import live_charts

MOST_AT_ONCE = 2000  # candidates in one answer; the page asks again for the others


def run_state(folder: Path, known: int) -> dict[str, Any]:
    """The run in `folder` as plain data.

    Args:
        folder: Run directory. One that holds something else is told of as a problem.
        known: How many candidates the page has. Where the run has fewer it was begun anew, and all are told.

    Returns:
        `status` as `bcnet status --json`; `charts` where `known` is zero and the network is traced; rows of `losses` by
        chart; `candidates` from number `first` on, `more` where there are others; what the `process` takes.
    """
    try:
        status = read_status(folder)
    except RunError as error:
        return {"status": {"folder": str(folder), "state": "damaged", "problems": [str(error)]}}
    told: dict[str, Any] = {"status": as_document(status), "process": _process(status)}
    try:
        if status.state != "empty":
            told |= _details(folder, status, read_settings(folder), known)
    except BCNetError as error:  # files that are being written for the first time are read again the next time
        told["status"]["problems"] = [*status.problems, str(error)]
    return {key: _finite(value) for key, value in told.items()}


def machine_state(folder: Path) -> dict[str, Any]:
    """What the machine is busy with: shares in percent, sizes for people."""
    memory = psutil.virtual_memory()
    disk = psutil.disk_usage(str(folder))
    return {
        "cores": psutil.cpu_count(),
        "cpu": psutil.cpu_percent(interval=None),
        "load": round(os.getloadavg()[0], 2),
        "memory": size(memory.total - memory.available),
        "memory_total": size(memory.total),
        "disk_free": size(disk.free),
        "time": time.time(),
    }


def _details(folder: Path, status: Status, settings: Settings, known: int) -> dict[str, Any]:
    rows = _candidates(folder, status, known)
    first = known if status.evaluations is not None and status.evaluations >= known else 0
    if first != known:
        rows = _candidates(folder, status, 0)
    details: dict[str, Any] = {
        "name": f"{settings.model} on {settings.data}",
        "budget": str(settings.budget),
        "losses": _losses(folder, status, settings),
        "first": first,
        "candidates": [_row(row, settings) for row in rows[:MOST_AT_ONCE]],
        "more": len(rows) > MOST_AT_ONCE,
    }
    if first == 0 and status.original_macs:
        details["charts"] = live_charts(settings.metric, status.original_macs, status.limits.get("macs"))
    return details


def _candidates(folder: Path, status: Status, known: int) -> tuple[Evaluated, ...]:
    if not status.evaluations:
        return ()
    return evaluated_from(folder / "evaluations.sqlite", known, status.limits)


def _row(candidate: Evaluated, settings: Settings) -> dict[str, Any]:
    """A row of the chart of candidates; the page finds out which are on the front."""
    return {
        "number": candidate.position,
        "generation": candidate.position // settings.population + 1,
        "macs": candidate.macs,
        "params": candidate.params,
        "score": candidate.score,
        "text": score_text(candidate.score, settings.metric),
        "within": candidate.within,
        "widths": list(candidate.widths),
        "front": False,
    }


def _losses(folder: Path, status: Status, settings: Settings) -> dict[str, list[dict[str, Any]]]:
    record = read_record(folder)
    curves = {} if record is None else record.curves
    totals = {stage.record.name: stage.record.total for stage in status.stages}
    charts = {"supernet": ("supernet",), "networks": tuple(NETWORKS.values())}
    epochs = {"supernet": settings.supernet.epochs}
    return {
        chart: [
            row
            for stage in stages
            if stage in curves and totals.get(stage)
            for row in _curve(stage, curves[stage], epochs.get(stage, settings.final.epochs) / totals[stage])
        ]
        for chart, stages in charts.items()
    }


def _curve(stage: str, curve: CurveRecord, epochs_per_step: float) -> list[dict[str, Any]]:
    return [
        {"stage": stage, "epoch": last * epochs_per_step, "loss": mean, "low": least, "high": largest}
        for last, _, mean, least, largest in curve.bins
    ]


def _process(status: Status) -> dict[str, Any] | None:
    """What the process that works on a run takes of this machine; None where it does not run here."""
    if status.pid is None or status.host != platform.node():
        return None
    try:
        process = psutil.Process(status.pid)
        taken = process.cpu_times()
        return {
            "pid": status.pid,
            "memory": size(process.memory_info().rss),
            "cpu_seconds": taken.user + taken.system,
            "threads": process.num_threads(),
        }
    except psutil.Error:
        return None


def _finite(value: Any) -> Any:
    """The same with null for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
