"""Bytes of an int8 network on a microcontroller with tflite-micro: its arena in memory, and its file in flash.

Notation: `s_t(c)` bytes of tensor `t` of the converted graph at widths `c`, `o_k(c)` output channels of operator `k`
that keeps a scale for each of them, `a(n)` rounded up to 16 bytes:

    arena(c) = plan(a(s_1(c)), a(s_2(c)), ...) + tail + sum_k 2 a(4 o_k(c))

`plan` is what tflite-micro's greedy planner comes to, simulated: the largest tensor first, each at the lowest address
where it fits beside those that live at the same time. `tail` are tensors' and operators' records, which widths leave
alone. A wider layer may take less: where two tensors are equally large one may lie in the other's place.

    flash(c) = sum of all constants and scales that the file holds + the most that it held beside them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from bcnet.costs.base import Measure, Measured
from bcnet.costs.memory import MEMORY
from bcnet.costs.polynomial import IntArray, Polynomial
from bcnet.display import size
from bcnet.errors import RunError

ALIGNMENT = 16


@dataclass(frozen=True)
class ConvertedGraph:
    """A network as tflite-micro takes it, at any widths, as `bcnet.tflite.read_graph` reads it.

    `space` is the fingerprint of the network's layers, `sizes` the bytes of the planned tensors, `lives` the first and
    last operator of each, `channels` the output channels of operators with scales, `tail` the bytes that stay the same,
    `file` the bytes of the file, some hundred at most too many, `versions` those of the packages. On `checked` networks
    the arena was that of tflite-micro to the byte, and no file was larger than `file` says.
    """

    space: str
    sizes: tuple[Polynomial, ...] = field(repr=False)
    lives: tuple[tuple[int, int], ...] = field(repr=False)
    channels: tuple[Polynomial, ...] = field(repr=False)
    tail: int
    file: Polynomial = field(repr=False)
    checked: int
    versions: Mapping[str, str] = field(default_factory=dict)

    def arena(self, widths: IntArray) -> IntArray:
        """Bytes of the arena, `(candidates, groups)` -> `(candidates,)`."""
        sizes = _align(np.stack([terms(widths) for terms in self.sizes], axis=1))
        # A multiplier and a shift for each channel, of four bytes.
        kept = sum((2 * _align(4 * terms(widths)) for terms in self.channels), np.int64(self.tail))
        planned = [plan(tuple(row), self.lives) for row in sizes.tolist()]
        return np.asarray(np.array(planned, dtype=np.int64) + kept)

    @property
    def peaks(self) -> tuple[Polynomial, ...]:
        """Bytes that live at once at each operator: no plan takes less."""
        moments = sorted({moment for life in self.lives for moment in life})
        found = []
        for moment in moments:
            alive = [s for s, (first, last) in zip(self.sizes, self.lives, strict=True) if first <= moment <= last]
            found.append(sum(alive, Polynomial({})))
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON; `from_dict` is the inverse."""
        return {
            "space": self.space,
            "sizes": [terms.to_list() for terms in self.sizes],
            "lives": [list(life) for life in self.lives],
            "channels": [terms.to_list() for terms in self.channels],
            "tail": self.tail,
            "file": self.file.to_list(),
            "checked": self.checked,
            "versions": dict(self.versions),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ConvertedGraph:
        """The model that `to_dict` wrote.

        Raises:
            KeyError, TypeError, ValueError: it wrote something else.
        """
        lives = tuple((int(first), int(last)) for first, last in data["lives"])
        sizes = tuple(map(Polynomial.from_list, data["sizes"]))
        if len(sizes) != len(lives) or not sizes:
            raise ValueError("every planned tensor has a size and a life")
        channels = tuple(map(Polynomial.from_list, data["channels"]))
        versions = {str(name): str(version) for name, version in data["versions"].items()}
        file = Polynomial.from_list(data["file"])
        return cls(str(data["space"]), sizes, lives, channels, int(data["tail"]), file, int(data["checked"]), versions)


@lru_cache(maxsize=2**16)
def plan(sizes: tuple[int, ...], lives: tuple[tuple[int, int], ...]) -> int:
    """Return the bytes that tflite-micro's greedy planner takes for tensors of these sizes and lives.

    Of equally large ones it places the later one first.

    Source: GreedyMemoryPlanner of tflite-micro.
    """
    placed: list[tuple[int, int, int, int]] = []  # (start, end, first, last), by start
    for number in sorted(range(len(sizes)), key=lambda n: (-sizes[n], -n)):
        first, last = lives[number]
        start = 0
        for low, high, begin, end in placed:
            if begin > last or end < first:
                continue
            if low - start >= sizes[number]:
                break
            start = max(start, high)
        placed.append((start, start + sizes[number], first, last))
        placed.sort()
    return max(end for _, end, _, _ in placed)


def _align(values: IntArray) -> IntArray:
    return np.asarray(-(-values // ALIGNMENT) * ALIGNMENT)


@dataclass(frozen=True)
class OnMicrocontroller(Measure):
    """A measure of the converted network; `graph` is read before a search. Two of other graphs are the same limit."""

    scales: ClassVar[Mapping[str, float]] = MEMORY.scales
    example: ClassVar[str] = "64 KiB"

    graph: ConvertedGraph | None = field(default=None, repr=False, compare=False)

    @property
    def description(self) -> str:
        """The text that people write."""
        return self.name

    @property
    def countable(self) -> bool:
        """Return whether there is a graph."""
        return self.graph is not None

    def text(self, value: float) -> str:
        """See `Measure`."""
        return f"{self.figure(value)} of {self.name}"

    def figure(self, value: float) -> str:
        """See `Measure`."""
        return size(value)

    def _read(self) -> ConvertedGraph:
        if self.graph is None:
            raise RunError(
                f"the {self.name} is read from converted networks, and this measure has none: give "
                "bcnet.tflite.read_graph(model, example_input), or let bcnet.search do it"
            )
        return self.graph


@dataclass(frozen=True)
class Arena(OnMicrocontroller):
    """Bytes of the arena of the int8 network in tflite-micro: the memory for tensors and the interpreter's records.

    It is what the interpreter takes on a 64-bit machine: on a microcontroller its records take about half, so that the
    figure is an upper bound there. Other than of most measures, a wider layer may take less of it.

    Example: `Budget(arena="64 KiB")`, on the command line `--budget arena=64KiB`.
    """

    name: ClassVar[str] = "arena"
    unit: ClassVar[str] = "bytes of arena"

    def values(self, space: Measured, widths: IntArray) -> IntArray:
        """See `Measure`."""
        return self._read().arena(widths)

    def constraints(self, space: Measured) -> Sequence[Polynomial]:
        """See `Measure`: what lives at once, without the gaps of a plan."""
        graph = self._read()
        return tuple(terms + Polynomial({(): graph.tail}) for terms in graph.peaks)


@dataclass(frozen=True)
class Flash(OnMicrocontroller):
    """Bytes of the int8 file: weights, biases and scales of every channel, and the graph. Code is not counted.

    Files are up to some hundred bytes smaller, as arrays happen to be aligned (results/arena.csv).

    Example: `Budget(flash="64 KiB")`, on the command line `--budget flash=64KiB`.
    """

    name: ClassVar[str] = "flash"
    unit: ClassVar[str] = "bytes of flash"

    def values(self, space: Measured, widths: IntArray) -> IntArray:
        """See `Measure`."""
        return self._read().file(widths)

    def constraints(self, space: Measured) -> Sequence[Polynomial]:
        """See `Measure`."""
        return (self._read().file,)


ARENA = Arena()
FLASH = Flash()
