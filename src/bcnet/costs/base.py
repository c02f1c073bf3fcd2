"""Cost measures: a name, a unit, and values for arrays of candidates.

A search needs two views of a measure. `values` is exact, for many candidates at once; budgets are compared with it.
`constraints` is for the prior's programme (Eq. 14): sums of tables over the choices of a few groups each. Their
expectation under independent rows is again such a sum.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from bcnet.costs.polynomial import IntArray, Polynomial
from bcnet.display import table
from bcnet.errors import BudgetError

Tables = Mapping[tuple[int, ...], npt.NDArray[np.float64]]
Constraint = Polynomial | Tables


class _Group(Protocol):
    @property
    def choices(self) -> tuple[int, ...]: ...


class _Layer(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def macs(self) -> Polynomial: ...

    @property
    def params(self) -> Polynomial: ...


class Measured(Protocol):
    """Argument of a measure: the width space with the traced network's polynomials."""

    @property
    def groups(self) -> Sequence[_Group]:
        """Width groups in order; a width vector has one entry for each."""

    @property
    def layers(self) -> Sequence[_Layer]:
        """Multiply-adds and parameters of each layer, in network order."""

    @property
    def macs_terms(self) -> Polynomial:
        """Multiply-adds for one input."""

    @property
    def params_terms(self) -> Polynomial:
        """Number of parameters."""

    @property
    def live_terms(self) -> Sequence[Polynomial]:
        """Elements of simultaneously live tensors for one input, at each moment that may have the maximum."""


class Measure(ABC):
    """A cost of widths. Settings are fields of a frozen dataclass, so that equal measures compare equal.

    Class attributes: `name` identifies it in budgets, files and on the command line. `unit` follows a value in text.
    Limits are whole numbers of a unit fine enough for that: nanoseconds, for instance, and not milliseconds. In text a
    limit is followed by one of `scales` (lower case), as in `example`.

    A measure must not decrease as a width grows, so that narrowing reaches any limit; one that may decrease must
    override `monotone`.

    Example: multiply-adds in which the first layer counts twice,

        @dataclass(frozen=True)
        class Weighted(bcnet.Measure):
            name, unit = "weighted", "weighted MACs"

            def values(self, space, widths):
                return space.macs_terms(widths) + space.layers[0].macs(widths)

            def constraints(self, space):
                return (space.macs_terms + space.layers[0].macs,)
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    scales: ClassVar[Mapping[str, float]] = MappingProxyType({"k": 1e3, "m": 1e6, "g": 1e9})
    example: ClassVar[str] = "150M"

    @classmethod
    def read_settings(cls, words: Sequence[str]) -> list[int | str]:
        """Parse the settings that follow the name after colons, in the order of the fields."""
        return [int(word) if word.isdecimal() else word for word in words]

    @property
    def monotone(self) -> bool:
        """Return whether the measure never decreases as a width grows."""
        return True

    @abstractmethod
    def values(self, space: Measured, widths: IntArray) -> Any:
        """Values of candidates, `(candidates, groups)` -> `(candidates,)`, int64 or float64."""

    @abstractmethod
    def constraints(self, space: Measured) -> Sequence[Constraint]:
        """Sums that are all at most the limit whenever `values` is. The prior keeps their expectations below it.

        Each is a `Polynomial` in the widths, or a dict of tables `{groups: table}` over the choices of distinct
        ascending groups, with one axis per group; the empty tuple of groups is a constant.
        """

    def limit(self, text: str) -> int | float:
        """Parse a limit: a ratio with a decimal point, or a count with or without a unit.

        Example: `MACS.limit("0.5") == 0.5`, `MACS.limit("150M") == MACS.limit("150_000_000") == 150_000_000`.

        Raises:
            BudgetError: the text is neither.
        """
        match = re.fullmatch(r"([0-9_]*\.?[0-9]+|[0-9][0-9_]*\.?)\s*([a-zµ]*)", text.strip(), re.IGNORECASE)
        scale = "" if match is None else match[2].lower()
        if match is None or (scale and scale not in self.scales):
            raise BudgetError(
                f"a limit on {self.name} must be a ratio such as 0.5 or a count such as {self.example}; got {text!r}"
            )
        number = match[1].replace("_", "")
        if scale:
            return round(float(number) * self.scales[scale])
        return float(number) if "." in number else int(number)

    def of_original(self, value: float) -> float:
        """Return the cost that ratios refer to; `value` is the cost at the original's widths."""
        return value

    @property
    def countable(self) -> bool:
        """Return whether values can be computed: False for a measure known by name only, or not measured yet."""
        return True

    def text(self, value: float) -> str:
        """Format a value with its unit.

        Example: `MACS.text(1_500) == "1,500 MACs"`.
        """
        return f"{self.figure(value)} {self.unit}"

    def figure(self, value: float) -> str:
        """Format a value for a table whose heading names the measure.

        Example: `MACS.figure(1_500) == "1,500"`.
        """
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"

    @property
    def description(self) -> str:
        """Return the text that identifies the measure and its settings in the files of a run."""
        fields: dict[str, Any] = dataclasses.asdict(self) if dataclasses.is_dataclass(self) else {}
        return f"{self.name} {json.dumps(fields, sort_keys=True, default=str)}" if fields else self.name


def fingerprint(space: Measured) -> str:
    """Return a fingerprint of the network's layers, independent of the choices of widths."""
    facts = [sorted(map(str, terms.to_list())) for terms in (space.macs_terms, space.params_terms)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def measure_name(name: str, settings: Sequence[object], usual: Sequence[object]) -> str:
    """Return a measure's name followed by its non-default settings, separated by colons."""
    last = max((n for n, (one, other) in enumerate(zip(settings, usual, strict=True), 1) if one != other), default=0)
    return ":".join(map(str, (name, *settings[:last])))


@dataclass(frozen=True)
class Cost:
    """Cost of a network: `macs`, multiply-adds for one input (the paper's FLOPs), and `params`, parameters.

    Fields are numbers for one network and arrays `(candidates,)` for many. `others` maps the names of the budget's
    other measures to their values.
    """

    macs: Any
    params: Any
    others: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, measure: str) -> Any:
        return {"macs": self.macs, "params": self.params, **self.others}[measure]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.macs, self.params, *self.others.values()))

    def each(self) -> Iterator[Cost]:
        """Iterate over the costs of single candidates, if the fields are arrays."""
        names = list(self.others)
        columns = (np.asarray(column).tolist() for column in (self.macs, self.params, *self.others.values()))
        for macs, params, *others in zip(*columns, strict=True):
            yield Cost(macs, params, dict(zip(names, others, strict=True)))

    def _repr_html_(self) -> str:
        headings = ("MACs", "parameters", *self.others)
        if np.ndim(self.macs) == 0:
            return table("Cost for one input", headings, [(int(self.macs), int(self.params), *self.others.values())])
        rows = [(cost.macs, cost.params, *cost.others.values()) for cost in self.each()]
        return table("Cost for one input", headings, rows)
