"""A cost: a measure of widths, with a name, a unit, and values for arrays of candidates.

A search needs two views of a measure. `values` is what a budget is held against, exact and for many candidates at once.
`constraints` is what the prior's programme (Eq. 14) sees: sums of tables over the choices of a few groups each, whose
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
    """The argument of a measure: the width space, with the polynomials that its network was traced to."""

    @property
    def groups(self) -> Sequence[_Group]:
        """The width groups, in order; widths have one entry for each."""

    @property
    def layers(self) -> Sequence[_Layer]:
        """The layers' own shares of MACs and parameters, in network order."""

    @property
    def macs_terms(self) -> Polynomial:
        """Multiply-adds for one input."""

    @property
    def params_terms(self) -> Polynomial:
        """Parameters."""

    @property
    def live_terms(self) -> Sequence[Polynomial]:
        """Elements of the tensors that live at once, for one input, at each moment that may be the largest."""


class Measure(ABC):
    """A cost of widths. Settings are fields of a frozen dataclass, so that equal measures are equal.

    Class attributes: `name` is the word for it in budgets, files and on the command line, `unit` what people read
    behind a value. Limits are whole numbers of it: microseconds, say, where milliseconds would be too coarse. A person
    writes a limit with one of `scales` (in small letters) behind the number, as in the `example`.

    A measure never falls as a width grows, so that narrowing brings a candidate under a limit; one that may fall says
    so by `monotone`.

    Example: multiply-adds of which those of the first layer count double,

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
        """Return what the words behind the colons of its name set, in the order of its fields."""
        return [int(word) if word.isdecimal() else word for word in words]

    @property
    def monotone(self) -> bool:
        """Return whether it never falls as a width grows."""
        return True

    @abstractmethod
    def values(self, space: Measured, widths: IntArray) -> Any:
        """Values of candidates, `(candidates, groups)` -> `(candidates,)`, int64 or float64."""

    @abstractmethod
    def constraints(self, space: Measured) -> Sequence[Constraint]:
        """Sums that are all at most the limit where `values` is; the prior keeps their expectations under it.

        A `Polynomial` in the widths, or tables `{groups: table}` over the choices of distinct ascending groups, one
        axis for each; the empty tuple of groups is a constant.
        """

    def limit(self, text: str) -> int | float:
        """A limit as a person writes it: a ratio with a decimal point, or a count with a unit or without.

        Example: `MACS.limit("0.5") == 0.5`, `MACS.limit("150M") == MACS.limit("150_000_000") == 150_000_000`.

        Raises:
            BudgetError: neither of the two.
        """
        match = re.fullmatch(r"([0-9_]*\.?[0-9]+|[0-9][0-9_]*\.?)\s*([a-zµ]*)", text.strip(), re.IGNORECASE)
        scale = "" if match is None else match[2].lower()
        if match is None or (scale and scale not in self.scales):
            raise BudgetError(
                f"a limit on {self.name} is a ratio such as 0.5 or a count such as {self.example}; got {text!r}"
            )
        number = match[1].replace("_", "")
        if scale:
            return round(float(number) * self.scales[scale])
        return float(number) if "." in number else int(number)

    def of_original(self, value: float) -> float:
        """Return what a ratio is taken of, `value` being that of the original network's widths."""
        return value

    @property
    def countable(self) -> bool:
        """Return whether there are values: not of a measure that a file only names, or that waits for measurements."""
        return True

    def text(self, value: float) -> str:
        """A value for people, with its unit.

        Example: `MACS.text(1_500) == "1,500 MACs"`.
        """
        return f"{self.figure(value)} {self.unit}"

    def figure(self, value: float) -> str:
        """A value for a table that has the measure's name at its head.

        Example: `MACS.figure(1_500) == "1,500"`.
        """
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"

    @property
    def description(self) -> str:
        """Return what tells this measure from others of other settings, in a run's files."""
        fields: dict[str, Any] = dataclasses.asdict(self) if dataclasses.is_dataclass(self) else {}
        return f"{self.name} {json.dumps(fields, sort_keys=True, default=str)}" if fields else self.name


def fingerprint(space: Measured) -> str:
    """Return what tells the layers of a network from others', whatever may be chosen of them."""
    facts = [sorted(map(str, terms.to_list())) for terms in (space.macs_terms, space.params_terms)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def measure_name(name: str, settings: Sequence[object], usual: Sequence[object]) -> str:
    """A measure's name with its settings behind colons, as far as they are not the usual ones."""
    last = max((n for n, (one, other) in enumerate(zip(settings, usual, strict=True), 1) if one != other), default=0)
    return ":".join(map(str, (name, *settings[:last])))


@dataclass(frozen=True)
class Cost:
    """The cost of a network: `macs` multiply-adds for one input (the paper's FLOPs) and `params` parameters.

    Numbers for one network, arrays of shape `(candidates,)` for many. `others` are the values of other measures, by
    their names, where a budget limits them.
    """

    macs: Any
    params: Any
    others: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, measure: str) -> Any:
        return {"macs": self.macs, "params": self.params, **self.others}[measure]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.macs, self.params, *self.others.values()))

    def each(self) -> Iterator[Cost]:
        """The costs of single candidates, where these are arrays."""
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
