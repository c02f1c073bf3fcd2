"""Check int8 files on real inputs by the task's metric, since quantised outputs differ from PyTorch's."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from bcnet.costs import ARENA, FLASH
from bcnet.errors import BCNetError, ExportError
from bcnet.formats import Runner
from bcnet.pytree import Pytree, call_model, concat_batches, map_tensors, slice_batch
from bcnet.run.finished import FinishedRun
from bcnet.run.parts import Parts, cut_data
from bcnet.run.workload import open_source, refuse_data_code
from bcnet.tasks import Task, task_described
from bcnet.tflite.converter import Converter
from bcnet.tflite.litert import FileNetwork

MOST_OFF = 0.5  # of the outputs' root mean square; broken files exceed it, quantised networks do not
_SAMPLES = 256


@dataclass(frozen=True)
class RealInputs:
    """The data of a run as network inputs: held-out training inputs `(samples, 1, ...)`, and the test data.

    `back` converts normalised images back to [0, 1], for files that normalise.

    """

    samples: Pytree
    parts: Parts
    task: Task
    back: nn.Module

    @classmethod
    def of(cls, finished: FinishedRun, data: Any, with_normalisation: bool) -> RealInputs:
        """Open the data of a finished run.

        Raises:
            ExportError: the run was given the user's own data, and `data` is None.
            DataError: the data cannot be read.
        """
        settings = finished.settings
        if data is None:
            refuse_data_code(settings.data, finished.path)
        try:
            source = open_source(
                finished.factory(),
                settings.data if data is None else data,
                image_size=settings.options.image_size,
                seed=settings.seed,
                task=task_described(settings.task),
            )
        except BCNetError as error:
            if data is not None:
                raise
            raise ExportError(f"an int8 file needs the run's data, which it does not find: {error}") from error
        parts = cut_data(source.data, settings)
        back = _Denormalise(finished) if with_normalisation else nn.Identity()
        batches = islice((inputs for inputs, _ in parts.validation), 8)
        rows = slice_batch(concat_batches(list(batches)), slice(_SAMPLES))
        samples = map_tensors(lambda tensor: back(tensor.cpu()).unsqueeze(1), rows)
        return cls(samples, parts, source.task, back)

    def difference(self, network: nn.Module, file: Runner) -> float:
        """Return the difference from PyTorch's outputs on the samples, as a share of these.

        Raises:
            ExportError: NaN, or outputs unrelated to PyTorch's.
        """
        count = len(_output_tensors(self.samples)[0])
        squares = total = 0.0
        for number in range(count):
            row = slice_batch(self.samples, number)
            with torch.no_grad():
                expected = torch.cat([t.flatten() for t in _output_tensors(call_model(network, row))])
            found = torch.cat([t.flatten() for t in _output_tensors(file(row))])
            squares += float((found - expected).square().sum())
            total += float(expected.square().sum())
        off = (squares / total) ** 0.5 if total else float("nan")
        if not off <= MOST_OFF:
            raise ExportError(
                f"an int8 file must give what PyTorch gives, within {MOST_OFF:g} of it; on {count} held-out inputs it "
                f"is {off:.3g} off: nothing was written; take --format litert, or train the network for quantisation"
            )
        return off

    def tests(self, network: nn.Module, file: Runner) -> dict[str, float]:
        """Return the test metric of PyTorch and of the file, each on all test inputs."""
        found = {}
        for name, tested in (("PyTorch", network), ("file", FileNetwork(file))):
            whole = tested if isinstance(self.back, nn.Identity) else nn.Sequential(self.back, tested)
            found[name] = self.task.test(whole, self.parts.test()).figures[self.task.headline.key]
        return found


class _Denormalise(nn.Module):
    """Converts normalised images back to [0, 1]."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, finished: FinishedRun) -> None:
        super().__init__()
        normaliser = finished.input.normaliser
        if normaliser is None:
            raise ExportError("--with-normalisation is for runs that normalise images themselves: leave it out")
        self.register_buffer("mean", torch.tensor(normaliser.mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(normaliser.std).view(-1, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images in [0, 1]."""
        return images * self.std + self.mean


def arena_of(content: bytes) -> int | None:
    """Return the bytes that tflite-micro needs for a file; None if it is not installed or lacks an operator."""
    with Converter() as converter:
        if "tflite-micro" not in converter.versions():
            return None
        try:
            return int(converter.describe(content)["arena"]["total"])
        except ExportError:
            return None


def exceeded_limits(finished: FinishedRun, size: int, arena: int | None) -> tuple[str, ...]:
    """Return the run's limits on arena and flash that a file of `size` bytes exceeds."""
    budget = finished.settings.budget
    original = finished.result.networks["original"].others
    found = []
    for measure, value in ((ARENA, arena), (FLASH, size)):
        given = budget.limits.get(measure)
        limit = given * original.get(measure.name, 0) if isinstance(given, float) else given
        if value is not None and limit is not None and value > limit:
            found.append(f"{measure.name}: {value:,} bytes, where the run was limited to {int(limit):,}")
    return tuple(found)


def _output_tensors(outputs: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
