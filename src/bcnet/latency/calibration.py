"""Calibration: a latency model from the times of some tens of whole networks of random widths.

Networks are added until the error on those that the fit has not seen no longer falls, or is small. A calibration that
is stopped, or ends because the machine is too busy, goes on with the times that it has taken before.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bcnet.costs import Latency, LatencyModel, TimedNetwork
from bcnet.costs.base import fingerprint
from bcnet.costs.latency import ALIGNED
from bcnet.errors import RunError
from bcnet.files.documents import read_document, write_document, write_plain
from bcnet.latency.engines import engine_of
from bcnet.latency.fit import fit
from bcnet.latency.measurement import engine_times, measure_steadily
from bcnet.nests import Nest, arguments, join_batches, map_tensors
from bcnet.space import Widths, WidthSpace
from bcnet.supernet import build

# Networks that are timed: at first, as many more where the fit is not good yet, and in all.
FIRST = 24
MORE = 12
MOST = 60
GOOD = 0.02  # a median error that needs no more networks
_IN_VAIN = 200  # draws without a network that is new


def calibrate(
    model: nn.Module,
    example_input: Nest,
    *,
    latency: Latency | None = None,
    space: WidthSpace | None = None,
    path: str | Path | None = None,
    seed: int = 0,
    on_measured: Callable[[Sequence[TimedNetwork]], None] = lambda _: None,
) -> Latency:
    """Time networks of random widths on this device, and fit a model that predicts the latency of any widths.

    Args:
        model: the network.
        example_input: what its `forward` takes, `(batch, ...)`; of several inputs a tuple, or a dict by name.
        latency: engine, threads and batch, `bcnet.costs.Latency("onnxruntime", threads=2)`; PyTorch on one thread
            where nothing is said.
        space: the model's width space, where it is not that of `WidthSpace.trace(model, example_input)`.
        path: a file to keep it in, which `bcnet.costs.read_latency` and `--latency-model` read. Until it is there, a
            file beside it, `unfinished(path)`, keeps the times that are taken, and the same call goes on with them.
        seed: of the widths.
        on_measured: is told of all networks that are timed so far.

    Returns:
        The measure with its model, for a budget.

    Raises:
        BudgetError: the machine is too busy for times to say anything.
        ExportError: the engine is not installed, or refuses the network.
        TraceError: as `WidthSpace.trace`.

    Example: `Budget({calibrate(resnet, torch.zeros(1, 3, 32, 32)): "2 ms"})`
    """
    asked = latency or Latency()
    args, kwargs = arguments(example_input)
    traced = space or WidthSpace.trace(model, args, example_kwargs=kwargs)
    whole, images = subject(model, example_input, asked)

    def network(widths: Widths) -> nn.Module:
        return build(whole, traced, widths)

    times_file = None if path is None else unfinished_path(Path(path))
    model_of_times = measure_and_fit(
        traced, network, images, asked, seed=seed, times_file=times_file, on_measured=on_measured
    )
    measure = store_model(asked, model_of_times, path)
    if times_file is not None:
        times_file.unlink(missing_ok=True)
    return measure


def unfinished_path(path: Path) -> Path:
    """Return where the times of a calibration are kept until its model is written to `path`."""
    return path.with_name(f"{path.name}.unfinished")


def subject(model: nn.Module, example_input: Nest, latency: Latency) -> tuple[nn.Module, Nest]:
    """A copy of the network to narrow, and a batch as the engine gets it, both on the CPU."""
    first = map_tensors(lambda tensor: tensor[:1].cpu(), example_input)
    return copy.deepcopy(model).cpu(), join_batches([first] * latency.batch)


def store_model(asked: Latency, model: LatencyModel, path: str | Path | None) -> Latency:
    """The measure with its model; written to `path`, if there is one, for `bcnet.costs.read_latency`."""
    if path is not None:
        write_plain(Path(path), {**_facts(asked), "model": model.to_dict()})
    return dataclasses.replace(asked, model=model)


def _facts(latency: Latency) -> dict[str, Any]:
    return {"engine": latency.engine, "threads": latency.threads, "batch": latency.batch}


def measure_and_fit(
    space: WidthSpace,
    network: Callable[[Widths], nn.Module],
    images: Nest,
    latency: Latency,
    *,
    seed: int = 0,
    times_file: Path | None = None,
    on_measured: Callable[[Sequence[TimedNetwork]], None] = lambda _: None,
) -> LatencyModel:
    """Measure networks of `space` and fit a model to their times.

    `network` makes the plain network of given widths, `images` is a batch as the engine gets it. `latency` says which
    engine; its own model is not looked at. `on_measured` is told of all that is measured so far.

    Times that `times_file` has of the same networks on the same machine are not taken again, and all that are taken
    are written there, batch by batch; whoever keeps the model removes it.

    Raises:
        ExportError: the engine is not installed, or refuses a network.
        BudgetError: the machine is too busy for times to say anything.
    """
    engine = engine_of(latency.engine)
    file = _TimesFile.of(times_file, space, latency)
    known = file.read()
    found: list[TimedNetwork] = []
    model: LatencyModel | None = None
    waiting = draws(space, seed)
    best = np.inf
    times = engine_times(engine, network, images, latency.threads)
    while len(found) < MOST:
        batch = list(islice(waiting, MORE if found else FIRST))
        if not batch:
            break
        # Networks of a batch are timed in turns, so that it is taken again as a whole or not at all.
        if all(widths in known for widths in batch):
            found += [known[widths] for widths in batch]
        else:
            found += measure_steadily(times, batch, latency.threads, model.references if model else ())
            file.write(found)
        on_measured(found)
        model = fit(space, found, machine(latency))
        if model.error <= GOOD or model.error > 0.9 * best:
            break
        best = model.error
    assert model is not None, "a space has widths"
    return model


@dataclass(frozen=True)
class _TimesFile:
    """Times of networks in a file, if there is one, and what they are times of: those of anything else are not read."""

    path: Path | None
    about: dict[str, Any]

    @classmethod
    def of(cls, path: Path | None, space: WidthSpace, latency: Latency) -> _TimesFile:
        return cls(path, {"space": fingerprint(space), "machine": machine(latency), **_facts(latency)})

    def read(self) -> dict[Widths, TimedNetwork]:
        if self.path is None or not self.path.exists():
            return {}
        try:
            document = read_document(self.path)
            networks = [TimedNetwork.from_list(row) for row in document.pop("networks")]
        except (RunError, KeyError, TypeError, ValueError):
            return {}  # what is damaged is measured again
        return {network.widths: network for network in networks} if document == self.about else {}

    def write(self, networks: Sequence[TimedNetwork]) -> None:
        if self.path is not None:
            write_document(self.path, {**self.about, "networks": [network.to_list() for network in networks]})


def draws(space: WidthSpace, seed: int) -> Iterator[Widths]:
    """Widths to measure, each once: the original and the narrowest, then networks of two kinds in turns.

    One kind has one ratio with noise around it, the other is random under a random number of multiply-adds, as what a
    search chooses among is. Where the space has widths that are no multiples of 4, two of four networks are of those
    that are, as engines may run them by other kernels. The draws end where a small space has hardly any others.
    """
    rng = np.random.default_rng(seed)
    met = dict.fromkeys((space.original_widths, space.narrowest))
    yield from met
    aligned = _aligned_choices(space)
    least, most = (space.cost(widths).macs for widths in (space.narrowest, space.full))
    in_vain = 0
    for turn in count():
        if in_vain == _IN_VAIN:
            return
        ratio = rng.uniform(0.15, 1.0)
        if turn % 2:
            limit = least + round(ratio * (most - least))
            widths = space.random(macs=limit, seed=int(rng.integers(2**31)))
        else:
            noisy = np.clip(ratio * np.exp(rng.normal(0, 0.35, len(space.groups))), 0.02, 1.0)
            widths = space.floor(noisy * np.array(space.full))
        if aligned and turn // 2 % 2:
            widths = tuple(
                max((c for c in choices if c <= width), default=choices[0])
                for choices, width in zip(aligned, widths, strict=True)
            )
        in_vain += 1
        if widths not in met:
            met[widths] = None
            in_vain = 0
            yield widths


def _aligned_choices(space: WidthSpace) -> list[tuple[int, ...]]:
    """For each group the widths that are multiples of 4, or all where there is none; empty where nothing differs."""
    aligned = [tuple(c for c in group.choices if c % ALIGNED == 0) or tuple(group.choices) for group in space.groups]
    return [] if all(len(a) == len(g.choices) for a, g in zip(aligned, space.groups, strict=True)) else aligned


def machine(latency: Latency) -> str:
    """The place and engine of the times, for people and to compare: processor, its instructions, cores and engine."""
    engine = engine_of(latency.engine)
    simd = torch.backends.cpu.get_cpu_capability()
    return (
        f"{engine.device}, {os.cpu_count()} cores, {platform.machine()} {simd}, {platform.system()}, "
        f"{latency.engine} {engine.version}"
    )
