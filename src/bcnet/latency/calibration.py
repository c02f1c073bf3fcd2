"""Calibration: a latency model from the times of some tens of whole networks with random widths.

Networks are added until the error on unseen networks is small or stops decreasing. A calibration that is interrupted,
or stops on a busy machine, continues with the times already taken.

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
from bcnet.errors import BudgetError, RunError
from bcnet.files.documents import read_document, write_document, write_plain
from bcnet.latency.engines import engine_of
from bcnet.latency.fit import fit_model
from bcnet.latency.measurement import engine_times, measure_steadily
from bcnet.pytree import Pytree, arguments, concat_batches, map_tensors
from bcnet.space import Widths, WidthSpace
from bcnet.supernet import build

# Networks that are timed: at first, in each further step, and at most.
FIRST = 24
MORE = 12
MOST = 60
NEAR = 12  # of a limit, if there is one
GOOD = 0.02  # median error that needs no more networks
_IN_VAIN = 200  # draws without a new network


def calibrate(
    model: nn.Module,
    example_input: Pytree,
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
        example_input: an input `(batch, ...)` of its `forward`; several inputs as a tuple, or a dict by name.
        latency: engine, threads and batch, such as `bcnet.costs.Latency("onnxruntime", threads=2)`; default: PyTorch on
            one thread.
        space: the model's width space; default: `WidthSpace.trace(model, example_input)`.
        path: file to store the measure in, for `bcnet.costs.read_latency` and `--latency-model`. Until it exists, the
            times are kept in `unfinished_path(path)`, from which the same call continues.
        seed: seed of the widths.
        on_measured: called with all networks timed so far.

    Returns:
        The measure with its model, for a budget.

    Raises:
        BudgetError: `latency` is no `Latency`, or the machine is too busy for reliable times.
        ExportError: the engine is not installed, or refuses the network.
        TraceError: as for `WidthSpace.trace`.

    Example: `Budget({calibrate(resnet, torch.zeros(1, 3, 32, 32)): "2 ms"})`

    """
    if not isinstance(latency, Latency | None):
        raise BudgetError(f"latency must be a bcnet.Latency; got {latency!r}: write Latency('onnxruntime'), say")
    requested = latency or Latency()
    args, kwargs = arguments(example_input)
    traced = space or WidthSpace.trace(model, args, example_kwargs=kwargs)
    whole, images = subject(model, example_input, requested)

    def network(widths: Widths) -> nn.Module:
        return build(whole, traced, widths)

    times_file = None if path is None else unfinished_path(Path(path))
    model_of_times = measure_and_fit(
        traced, network, images, requested, seed=seed, times_file=times_file, on_measured=on_measured
    )
    measure = store_model(requested, model_of_times, path)
    if times_file is not None:
        times_file.unlink(missing_ok=True)
    return measure


def unfinished_path(path: Path) -> Path:
    """Return the path where times are kept until the model is written to `path`."""
    return path.with_name(f"{path.name}.unfinished")


def subject(model: nn.Module, example_input: Pytree, latency: Latency) -> tuple[nn.Module, Pytree]:
    """Return a copy of the network to narrow, and a batch in the engine's form, both on the CPU."""
    first = map_tensors(lambda tensor: tensor[:1].cpu(), example_input)
    return copy.deepcopy(model).cpu(), concat_batches([first] * latency.batch)


def store_model(requested: Latency, model: LatencyModel, path: str | Path | None) -> Latency:
    """Return the measure with its model; write it to `path`, if given, for `bcnet.costs.read_latency`."""
    if path is not None:
        write_plain(Path(path), {**_facts(requested), "model": model.to_dict()})
    return dataclasses.replace(requested, model=model)


def _facts(latency: Latency) -> dict[str, Any]:
    return {"engine": latency.engine, "threads": latency.threads, "batch": latency.batch}


def measure_and_fit(
    space: WidthSpace,
    network: Callable[[Widths], nn.Module],
    images: Pytree,
    latency: Latency,
    *,
    seed: int = 0,
    times_file: Path | None = None,
    on_measured: Callable[[Sequence[TimedNetwork]], None] = lambda _: None,
    near_limit: Callable[[LatencyModel], Sequence[Widths]] = lambda _: (),
) -> LatencyModel:
    """Measure networks of `space` and fit a model to their times.

    `network` returns the plain network of given widths, and `images` is a batch in the engine's form. `latency` selects
    the engine; its own model is ignored. `on_measured` is called with all measurements so far. `near_limit` returns
    networks that the fitted model predicts to be near the limit of a search, at most `NEAR`: they are measured and
    fitted too, and the margin is that of their errors.

    Times in `times_file` of the same networks on the same machine are reused, and all new ones are written there, batch
    by batch; the caller removes the file after storing the model.

    Raises:
        ExportError: the engine is not installed, or refuses a network.
        BudgetError: the machine is too busy for reliable times.

    """
    engine = engine_of(latency.engine)
    file = _TimesFile.of(times_file, space, latency)
    known = file.read()
    found: list[TimedNetwork] = []
    model: LatencyModel | None = None
    waiting = draws(space, seed)
    best = np.inf
    times = engine_times(engine, network, images, latency.threads)

    def measure(batch: Sequence[Widths], model: LatencyModel | None) -> None:
        # Networks of a batch are timed in turns, so a batch is reused as a whole or not at all.
        if all(widths in known for widths in batch):
            found.extend(known[widths] for widths in batch)
        else:
            found.extend(measure_steadily(times, batch, latency.threads, model.references if model else ()))
            file.write(found)
        on_measured(found)

    while len(found) < MOST:
        batch = list(islice(waiting, MORE if found else FIRST))
        if not batch:
            break
        measure(batch, model)
        model = fit_model(space, found, machine(latency))
        if model.error <= GOOD or model.error > 0.9 * best:
            break
        best = model.error
    assert model is not None, "a space has widths"
    timed = {m.widths for m in found}
    near = [widths for widths in near_limit(model) if widths not in timed]
    if near:
        measure(near, model)
        # A few errors say too little about how far others may lie apart, as in a space of few widths.
        model = fit_model(space, found, machine(latency), len(near) if len(near) >= NEAR // 2 else 0)
    return model


@dataclass(frozen=True)
class _TimesFile:
    """Stored times of networks, with what they were measured on; times of anything else are ignored."""

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
            return {}  # corrupt entries are measured again
        return {network.widths: network for network in networks} if document == self.about else {}

    def write(self, networks: Sequence[TimedNetwork]) -> None:
        if self.path is not None:
            write_document(self.path, {**self.about, "networks": [network.to_list() for network in networks]})


def draws(space: WidthSpace, seed: int) -> Iterator[Widths]:
    """Yield distinct widths to measure: the original, the narrowest, then two kinds of networks in turns.

    One kind has one ratio with noise around it. The other is random below a random number of multiply-adds, like the
    candidates of a search. If the space has unaligned widths, two of four networks have widths that are multiples of 4,
    since engines may run them with other kernels. The iterator ends when a small space has hardly any new widths.
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
    """Return for each group the multiples of 4, or all widths if there are none; empty if this changes nothing."""
    aligned = [tuple(c for c in group.choices if c % ALIGNED == 0) or tuple(group.choices) for group in space.groups]
    return [] if all(len(a) == len(g.choices) for a, g in zip(aligned, space.groups, strict=True)) else aligned


def machine(latency: Latency) -> str:
    """Describe where times come from, for people and for comparison: processor, instructions, cores and engine."""
    engine = engine_of(latency.engine)
    simd = torch.backends.cpu.get_cpu_capability()
    return (
        f"{engine.device}, {os.cpu_count()} cores, {platform.machine()} {simd}, {platform.system()}, "
        f"{latency.engine} {engine.version}"
    )
