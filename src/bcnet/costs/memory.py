"""Memory of a network: peak bytes of its activations, and bytes of its weights.

Notation: `n_t(c)` is the number of elements of the tensors that are live at moment `t` of the graph's own schedule at
widths `c` (`bcnet.space.liveness`), `b` the bytes of an element, `B` the number of images at once:

    memory(c) = B * b * max_t n_t(c)        size(c) = b * params(c)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal, get_args

import numpy as np

from bcnet.costs.base import Measure, Measured, measure_name
from bcnet.costs.polynomial import IntArray, Polynomial
from bcnet.display import size
from bcnet.errors import BudgetError

Element = Literal["fp32", "fp16", "int8"]
_BYTES: Mapping[str, int] = MappingProxyType({"fp32": 4, "fp16": 2, "int8": 1})
_SCALES: Mapping[str, float] = MappingProxyType(
    {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
)


@dataclass(frozen=True)
class Memory(Measure):
    """Peak bytes of activations, without weights: a lower bound of an engine's arena.

    `element` is the storage type and `batch` the number of images at once. Batch norm and activations run in place, as
    engines fold them. Scratch space, padded copies, alignment and an engine's own records are not counted.

    Example: `Budget({Memory("int8"): "320 KiB"})`, on the command line `--budget memory:int8=320KiB`.
    """

    name: ClassVar[str] = "memory"
    unit: ClassVar[str] = "bytes of activations"
    scales: ClassVar[Mapping[str, float]] = _SCALES
    example: ClassVar[str] = "320 KiB"

    element: Element = "fp32"
    batch: int = 1

    def __post_init__(self) -> None:
        _check_element(self.element)
        if isinstance(self.batch, bool) or not isinstance(self.batch, int) or self.batch < 1:
            raise BudgetError(f"the batch of a memory budget must be an int of at least 1; got {self.batch!r}")

    @property
    def description(self) -> str:
        """Text form of the measure: "memory", "memory:int8", "memory:int8:8"."""
        return measure_name(self.name, (self.element, self.batch), ("fp32", 1))

    def values(self, space: Measured, widths: IntArray) -> IntArray:
        """See `Measure`."""
        most: IntArray = np.max([terms(widths) for terms in self.constraints(space)], axis=0)
        return most

    def constraints(self, space: Measured) -> tuple[Polynomial, ...]:
        """See `Measure`; one for each moment that may have the maximum."""
        return tuple(terms * (_BYTES[self.element] * self.batch) for terms in space.live_terms)

    def text(self, value: float) -> str:
        """See `Measure`."""
        return f"{self.figure(value)} of activations"

    def figure(self, value: float) -> str:
        """See `Measure`."""
        return size(value)


@dataclass(frozen=True)
class Size(Measure):
    """Bytes of the weights, each stored as an `element`.

    Example: `Budget(size="1 MiB")`, on the command line `--budget size:int8=250KiB`.
    """

    name: ClassVar[str] = "size"
    unit: ClassVar[str] = "bytes of weights"
    scales: ClassVar[Mapping[str, float]] = _SCALES
    example: ClassVar[str] = "1 MiB"

    element: Element = "fp32"

    def __post_init__(self) -> None:
        _check_element(self.element)

    @property
    def description(self) -> str:
        """Text form of the measure: "size", "size:int8"."""
        return measure_name(self.name, (self.element,), ("fp32",))

    def values(self, space: Measured, widths: IntArray) -> IntArray:
        """See `Measure`."""
        return self.constraints(space)[0](widths)

    def constraints(self, space: Measured) -> tuple[Polynomial]:
        """See `Measure`."""
        return (space.params_terms * _BYTES[self.element],)

    def text(self, value: float) -> str:
        """See `Measure`."""
        return f"{self.figure(value)} of weights"

    def figure(self, value: float) -> str:
        """See `Measure`."""
        return size(value)


def _check_element(element: object) -> None:
    if element not in get_args(Element):
        raise BudgetError(f"an element must be stored as one of {', '.join(get_args(Element))}; got {element!r}")


MEMORY = Memory()
SIZE = Size()
