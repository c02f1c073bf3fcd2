"""Memory of an int8 network on a microcontroller with tflite-micro: the arena in RAM, and the file in flash.

Notation: `s_t(c)` are the bytes of tensor `t` of the converted graph at widths `c`, `o_k(c)` the output channels of
operator `k` with one scale per channel, and `a(n)` is `n` rounded up to a multiple of 16:

    arena(c) = plan(a(s_1(c)), a(s_2(c)), ...) + tail + sum_k 2 a(4 o_k(c))

`plan` simulates tflite-micro's greedy planner: tensors are placed from the largest to the smallest, each at the lowest
address where it fits beside those that are live at the same time. `tail` are records of tensors and operators, which do
not depend on widths. The arena is not monotone: where two tensors are equally large, a wider layer may need less.

    flash(c) = sum of all constants and scales in the file + the largest remainder of the files measured
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
    """A network as tflite-micro sees it, at any widths; `bcnet.tflite.read_graph` makes it.

    `space` is the fingerprint of the network's layers. `sizes` are the bytes of the planned tensors and `lives` the
    first and last operator of each. `channels` are the output channels of operators with scales. `tail` are the bytes
    that do not depend on widths. `file` are the bytes of the file, at most some hundred too many. `versions` lists the
    packages. For `checked` networks the arena equalled tflite-micro's to the byte, and no file was larger than `file`.
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
        """Return the bytes of the arena, `(candidates, groups)` -> `(candidates,)`."""
        sizes = _align(np.stack([terms(widths) for terms in self.sizes], axis=1))
        # a multiplier and a shift of four bytes for each channel
        kept = sum((2 * _align(4 * terms(widths)) for terms in self.channels), np.int64(self.tail))
        planned = [plan(tuple(row), self.lives) for row in sizes.tolist()]
        return np.asarray(np.array(planned, dtype=np.int64) + kept)

    @property
    def peaks(self) -> tuple[Polynomial, ...]:
        """Live bytes at each operator, a lower bound of every plan."""
        moments = sorted({moment for life in self.lives for moment in life})
        found = []
        for moment in moments:
            alive = [s for s, (first, last) in zip(self.sizes, self.lives, strict=True) if first <= moment <= last]
            found.append(sum(alive, Polynomial({})))
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers for JSON; `from_dict` is the inverse."""
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
        """Return the graph that `to_dict` wrote.

        Raises:
            KeyError, TypeError, ValueError: the data have another form.
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
    """Return the bytes that tflite-micro's greedy planner needs for tensors of these sizes and lifetimes.

    Among equally large tensors it places the later one first.

    Source: GreedyMemoryPlanner of tflite-micro.
    """
    placed: list[tuple[int, int, int, int]] = []  # (start, end, first, last), sorted by start
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
    """Base of measures of the converted network. Measures that differ only in `graph` compare equal."""

    scales: ClassVar[Mapping[str, float]] = MEMORY.scales
    example: ClassVar[str] = "64 KiB"

    graph: ConvertedGraph | None = field(default=None, repr=False, compare=False)

    @property
    def description(self) -> str:
        """Text form of the measure."""
        return self.name

    @property
    def countable(self) -> bool:
        """Return whether the graph has been read."""
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
    """Bytes of the int8 network's arena in tflite-micro: memory for tensors and for the interpreter's records.

    The figure is that of a 64-bit machine. On a microcontroller the records take about half, so it is an upper bound
    there. Unlike most measures it is not monotone: a wider layer may need less.

    Example: `Budget(arena="64 KiB")`, on the command line `--budget arena=64KiB`.
    """

    name: ClassVar[str] = "arena"
    unit: ClassVar[str] = "bytes of arena"

    def values(self, space: Measured, widths: IntArray) -> IntArray:
        """See `Measure`."""
        return self._read().arena(widths)

    def constraints(self, space: Measured) -> Sequence[Polynomial]:
        """See `Measure`; live bytes, without the gaps of a plan."""
        graph = self._read()
        return tuple(terms + Polynomial({(): graph.tail}) for terms in graph.peaks)


@dataclass(frozen=True)
class Flash(OnMicrocontroller):
    """Bytes of the int8 file: weights, biases, scales of every channel, and the graph. Code is not counted.

    Real files are up to some hundred bytes smaller, depending on the alignment of arrays (results/arena.csv).

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
