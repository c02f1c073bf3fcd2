"""Measured latency: the original, Uniform and searched networks timed in turns on this device.

The searched widths rounded to multiples of 8 are timed too, since devices differ in whether they are faster. Times
depend on shapes, not on weights, so the rounded network has random weights.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from bcnet.costs import Budget, Cost
from bcnet.data.transfer import move
from bcnet.errors import ExportError
from bcnet.files.documents import read_document, write_document
from bcnet.latency import ENGINES, engine_of
from bcnet.machine.defaults import threads as torch_threads
from bcnet.machine.devices import check_device, device_name
from bcnet.machine.timing import Timing, time_in_turns
from bcnet.run import names
from bcnet.run.finished import FinishedRun
from bcnet.run.result import Which
from bcnet.run.workload import ModelLike
from bcnet.space import Widths, WidthSpace
from bcnet.supernet import build
from bcnet.train import derived_generator

BACKENDS = tuple(name for name in ENGINES if name != "cuda")  # torch runs on both devices
MULTIPLE = 8
_NETWORKS: tuple[Which, ...] = ("original", "uniform", "searched")
_ROUNDED = "rounded"


@dataclass(frozen=True)
class Latency:
    """Times of one batch in milliseconds for each network: "original", "uniform", "searched" and "rounded".

    `macs_ratio` is relative to the original, and `widths` are one per group. "rounded" is the searched network with
    widths rounded to multiples of 8; it is absent if they are multiples already.
    """

    backend: str
    device: str
    threads: int
    batch: int
    milliseconds: Mapping[str, Timing]
    macs_ratio: Mapping[str, float]
    widths: Mapping[str, Widths]

    @property
    def verdict(self) -> str:
        """Return a sentence on whether multiples of 8 are faster on this device.

        Overlapping quartiles count as equal.
        """
        if _ROUNDED not in self.milliseconds:
            return f"The searched widths are multiples of {MULTIPLE} already."
        exact = self.milliseconds["searched"]
        even = self.milliseconds[_ROUNDED]
        change = (
            f"{even.median:.3g} ms at {self.macs_ratio[_ROUNDED]:.3f}x of the MACs against {exact.median:.3g} ms at "
        )
        change += f"{self.macs_ratio['searched']:.3f}x"
        if even.high < exact.low:
            return f"Multiples of {MULTIPLE} are faster here: {change}; search with --multiple-of {MULTIPLE}."
        if exact.high < even.low:
            return f"Multiples of {MULTIPLE} are not faster here: {change}."
        return f"Multiples of {MULTIPLE} make no difference beyond the spread here: {change}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as in `latency.json`."""
        return dataclasses.asdict(self) | {
            "widths": {name: list(widths) for name, widths in self.widths.items()},
            "verdict": self.verdict,
        }


def measure_latency(
    run: str | os.PathLike[str],
    factory: ModelLike | None = None,
    *,
    backend: str = "torch",
    threads: int = 1,
    batch: int = 1,
    rounds: int = 50,
    warmup: int = 10,
    device: str = "cpu",
) -> Latency:
    """Time the networks of a finished run against each other, and store the times in its `latency.json`.

    After `warmup` uncounted rounds, each of `rounds` rounds times every network once, in a rotating order.

    Args:
        run: the run directory, or what `bcnet.search` returned.
        factory: returns the full network, if the run was given a module or a function.
        backend: `torch` runs the networks in PyTorch; `onnxruntime`, `openvino`, `litert`, `ncnn`, `mnn` and
            `executorch` run the exported files on the CPU (an extra each); `litert:int8` and `executorch:int8` run
            quantised files.
        threads: CPU threads.
        batch: images at once.
        rounds, warmup: numbers of rounds.
        device: `cpu` or `cuda`, for `torch`.

    Raises:
        ExportError: a setting out of range, or a missing package.
        RecipeError: torch does not have the device here.
        RunError: no finished run.
        ModelError: as for `bcnet.load`.

    Example: `bcnet.measure_latency("runs/half", threads=4).milliseconds["searched"].median`

    """
    _check(backend, device, threads=threads, batch=batch, rounds=rounds)
    finished = FinishedRun.read(run, factory)
    return time_networks(
        finished, backend=backend, threads=threads, batch=batch, rounds=rounds, warmup=warmup, device=device
    )


def time_networks(
    finished: FinishedRun, *, backend: str, threads: int, batch: int, rounds: int, warmup: int, device: str
) -> Latency:
    """Implement `measure_latency` for an open run."""
    place = check_device(device)
    space = finished.space()
    networks, widths = _networks(finished, space)
    images = finished.input.draw_random(batch, derived_generator(finished.settings.seed, "latency"))
    engine = engine_of(backend)
    placed = move(images, place)
    calls = {name: engine.prepare(network.to(place), placed, threads) for name, network in networks.items()}
    with torch_threads(threads):
        times = time_in_turns(calls, rounds=rounds, warmup=warmup, device=device)
    latency = Latency(
        backend,
        device_name(place),
        threads,
        batch,
        times,
        {name: space.cost(w).macs / space.reference.macs for name, w in widths.items()},
        widths,
    )
    _keep(finished.path, latency)
    return latency


def installed_backends() -> list[str]:
    """Return the installed engines, PyTorch first."""
    return [name for name in BACKENDS if engine_of(name).is_installed]


def read_latencies(run: str | Path) -> list[dict[str, Any]]:
    """Return the measurements stored in a run directory, as from `Latency.to_dict`; possibly none.

    Raises:
        RunError: the file is corrupt.
    """
    file = Path(run) / names.LATENCIES
    return list(read_document(file)["measurements"]) if file.exists() else []


def _networks(finished: FinishedRun, space: WidthSpace) -> tuple[dict[str, nn.Module], dict[str, Widths]]:
    networks: dict[str, nn.Module] = {which: finished.network(which) for which in _NETWORKS}
    widths: dict[str, Widths] = {which: finished.widths(which) for which in _NETWORKS}
    even = round_widths(space, widths["searched"], MULTIPLE, _countable(finished, space.cost(widths["searched"])))
    if even != widths["searched"]:
        networks[_ROUNDED] = build(finished.factory(), space, even).eval()
        widths[_ROUNDED] = even
    return networks, widths


def _countable(finished: FinishedRun, searched: Cost) -> Budget:
    """Return the part of the run's budget that its files can compute; custom measures need the user's code.

    If nothing remains, the multiply-adds of the searched network are the limit.
    """
    budget = finished.settings.budget
    if budget.macs is None and budget.params is None:
        return Budget(macs=searched.macs)
    return Budget(macs=budget.macs, params=budget.params)


def _check(backend: str, device: str, **counts: Any) -> None:
    if backend not in BACKENDS:
        raise ExportError(f"a backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
    if backend != "torch" and device != "cpu":
        raise ExportError(f"{backend} must be timed on the cpu; got {device!r}: take --backend torch")
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ExportError(f"{name} must be an int of at least 1; got {value!r}")


def _keep(run: Path, latency: Latency) -> None:
    """Store the measurement, replacing the previous one of the same kind."""
    keys = ("backend", "device", "threads", "batch")
    now = latency.to_dict()
    others = [m for m in read_latencies(run) if any(m[key] != now[key] for key in keys)]
    write_document(run / names.LATENCIES, {"measurements": [*others, now]})


def round_widths(space: WidthSpace, widths: Widths, multiple: int, budget: Budget) -> Widths:
    """Return the nearest multiples of `multiple` (and of each group's unit), within the budget if possible.

    While the budget is exceeded, the group that was widened most, relative to its size, is narrowed to the multiple
    below its width in `widths`. A group narrower than one multiple keeps one, so the result may exceed the budget.
    """
    found = [
        _nearest_multiple(group.max_width, math.lcm(group.unit, multiple), width)
        for group, width in zip(space.groups, widths, strict=True)
    ]
    limits = budget.resolve(space.reference)
    while not limits.admits(space.cost(tuple(found))):
        lower = {
            g: (found[g] - widths[g]) / widths[g]
            for g, group in enumerate(space.groups)
            if found[g] > widths[g] and found[g] > math.lcm(group.unit, multiple)
        }
        if not lower:
            break
        widest = max(lower, key=lambda g: (lower[g], g))
        step = math.lcm(space.groups[widest].unit, multiple)
        found[widest] = (found[widest] - 1) // step * step
    return tuple(found)


def _nearest_multiple(full: int, step: int, width: int) -> int:
    """Return the nearest multiple; full width is kept, since narrowing the original's width is not rounding."""
    if width == full or step > full:
        return full
    return min(max(step, (width + step // 2) // step * step), full)
