"""Calibration on another device: a bundle of network files with a timing script, and a reader of its times.

Times are a CSV with one line per network, from the bundle's script, a board or a simulator. Columns: `widths`, one per
group in order, separated by spaces, and `milliseconds` of a batch. Optional: `noise` (a share), `device` (a
description), `engine`, `threads` and `batch`.
"""

from __future__ import annotations

import csv
import json
import math
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bcnet.costs import Latency, TimedNetwork
from bcnet.errors import BudgetError, ExportError, WidthError
from bcnet.files.atomic import make_folder
from bcnet.latency.calibration import draws, store_model, subject
from bcnet.latency.engines import FileEngine, engine_of
from bcnet.latency.fit import FOLDS, fit_model
from bcnet.latency.measurement import too_busy
from bcnet.machine import measure
from bcnet.pytree import Pytree, arguments, by_name, upper_bound
from bcnet.space import WidthSpace
from bcnet.supernet import build

NETWORKS = 36
_CSV = "times must be a CSV with the columns widths and milliseconds"
LEAST = 2 * FOLDS  # fewest networks for a meaningful cross-validation


def write_bundle(
    model: nn.Module,
    example_input: Pytree,
    folder: str | Path,
    *,
    latency: Latency,
    space: WidthSpace | None = None,
    networks: int = NETWORKS,
    seed: int = 0,
) -> Path:
    """Write files of networks of random widths in the engine's format, and a script that times them on the device.

    The script, measure.py, needs numpy and the engine (executorch also needs torch). Its output is read by
    `latency_from`.

    Args:
        model: the network.
        example_input: an input `(batch, ...)` of its `forward`; several inputs as a tuple, or a dict by name.
        folder: a new or empty folder.
        latency: engine (one that runs files, see `bcnet.machine.measure.CALLS`), threads and batch.
        space: the model's width space; default: `WidthSpace.trace(model, example_input)`.
        networks: number of networks.
        seed: seed of the widths.

    Returns:
        The path of the script.

    Raises:
        ExportError: the engine does not run files, the network cannot be exported, or the folder is not empty.

    """
    if latency.engine not in measure.CALLS:
        known = ", ".join(measure.CALLS)
        raise ExportError(f"a bundle is for an engine that runs files, one of {known}; got {latency.engine}")
    if networks < LEAST:
        raise BudgetError(f"a model must be fitted to the times of at least {LEAST} networks; got {networks}")
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ExportError(f"a bundle must be written to a new or empty folder; {place} is not")
    args, kwargs = arguments(example_input)
    traced = space or WidthSpace.trace(model, args, example_kwargs=kwargs)
    whole, images = subject(model, example_input, latency)
    make_folder(place.parent)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        engine = engine_of(latency.engine)
        assert isinstance(engine, FileEngine)
        rows = []
        for number, widths in enumerate(islice(draws(traced, seed), networks)):
            name = f"network_{number:02}.{engine.suffix}"
            (unfinished / name).write_bytes(engine.write(build(whole, traced, widths).eval(), images))
            rows.append({"file": name, "widths": list(widths)})
        facts = {name: _facts(tensor) for name, tensor in by_name(images).items()}
        requested = {"engine": latency.engine, "threads": latency.threads, "inputs": facts}
        (unfinished / "bundle.json").write_text(json.dumps({**requested, "networks": rows}, indent=1))
        shutil.copyfile(measure.__file__, unfinished / "measure.py")
        unfinished.chmod(0o755)
        unfinished.replace(place)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return place / "measure.py"


def _facts(tensor: torch.Tensor) -> dict[str, Any]:
    """Return the facts from which the script draws an input; integers are below `high`."""
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch."), "high": upper_bound(tensor)}


def latency_from(
    times: str | Path, space: WidthSpace, latency: Latency | None = None, *, path: str | Path | None = None
) -> Latency:
    """Return the latency measure of a device, with a model fitted to times taken there.

    Args:
        times: the CSV (see `bcnet.latency.bundle`).
        space: the network's width space.
        latency: engine, threads and batch, if the file lacks them.
        path: file to store the measure in, for `bcnet.costs.read_latency` and `--latency-model`.

    Raises:
        BudgetError: no such file, an invalid line (the first one is named), too few networks, or times that do not
            depend on widths.

    """
    file = Path(times)
    found: dict[tuple[int, ...], list[tuple[float, float]]] = defaultdict(list)
    stated: dict[str, str] = {}
    for number, row in _rows(file):
        try:
            widths = tuple(int(word) for word in row["widths"].split())
            space.check(widths)
            milliseconds = float(row["milliseconds"])
            noise = float(row.get("noise") or 0)
            if not 0 < milliseconds < math.inf or not 0 <= noise < math.inf:
                raise ValueError(f"a time must be positive, and noise at least 0; got {milliseconds:g} and {noise:g}")
        except (ValueError, WidthError) as error:
            raise BudgetError(f"line {number} of {file} is not the time of a network: {error}") from None
        for name in ("engine", "threads", "batch", "device"):
            value = (row.get(name) or "").strip()
            if stated.setdefault(name, value) != value:
                raise BudgetError(
                    f"times must be of one device; the {name} of line {number} of {file} is {value!r}, before it was "
                    f"{stated[name]!r}"
                )
        found[widths].append((1e6 * milliseconds, noise))
    if len(found) < LEAST:
        raise BudgetError(f"a model must be fitted to the times of at least {LEAST} networks; {file} has {len(found)}")
    apart = float(np.median([noise for rows in found.values() for _, noise in rows]))
    if apart > measure.BUSY:
        raise too_busy(apart)
    networks = []
    # A network may have several lines, from repeated runs of the script.
    for widths, rows in found.items():
        nanoseconds, noise = (float(np.median(column)) for column in zip(*rows, strict=True))
        networks.append(TimedNetwork(widths, nanoseconds, noise))
    requested = _resolve_measure(stated, latency, file)
    return store_model(
        requested, fit_model(space, networks, stated["device"] or f"{requested.engine}, times of {file.name}"), path
    )


def _rows(file: Path) -> list[tuple[int, Mapping[str, str]]]:
    try:
        with open(file, newline="", encoding="utf-8") as lines:
            rows = csv.DictReader(lines, restval="")
            columns = rows.fieldnames or ()
            missing = [name for name in ("widths", "milliseconds") if name not in columns]
            if missing:
                raise BudgetError(f"{_CSV}; {file} has no {missing[0]}")
            return [(rows.line_num, row) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BudgetError(f"{_CSV}; {file} cannot be read: {error}") from None


def _resolve_measure(stated: Mapping[str, str], latency: Latency | None, file: Path) -> Latency:
    """Return the measure that the file names, or the requested one."""
    given: dict[str, Any] = {"engine": stated["engine"]} if stated["engine"] else {}
    for name in ("threads", "batch"):
        if stated[name]:
            given[name] = int(stated[name]) if stated[name].isdigit() else stated[name]
    if latency is None:
        return Latency(**{"engine": "other", **given})
    for name, value in given.items():
        if getattr(latency, name) != value:
            raise BudgetError(f"{file} was measured with {name} {value}; got {getattr(latency, name)}: leave it out")
    return latency
