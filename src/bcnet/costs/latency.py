"""Latency: nanoseconds of one batch on an engine, by a model that was fitted to measured networks.

Notation: `phi_k(c)` features of the widths, each a polynomial of widths rounded up to whole blocks of `B` channels, as
hardware counts them (`B = 1`: as they are), `a_k >= 0` their coefficients, `m` the margin:

    latency(c) = (1 + m) * (a_0 + sum_k a_k phi_k(ceil_B(c)))

A feature may count only where the input of its layers is no multiple of 4, 8 or 16 channels, which some engines
compute with slower kernels.

The margin makes it an upper bound: in cross-validation nine of ten networks took no longer. A network that a budget
admits may still take longer on the machine, so that a search accepts its widths only after it has measured them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NoReturn, get_args

import numpy as np

from bcnet.costs.base import Measure, Measured, Tables, measure_name
from bcnet.costs.polynomial import FloatArray, IntArray, Polynomial
from bcnet.errors import BudgetError, RunError

Engine = Literal[
    "torch",
    "cuda",
    "onnxruntime",
    "openvino",
    "litert",
    "litert:int8",
    "ncnn",
    "mnn",
    "executorch",
    "executorch:int8",
    "other",
]
ALIGNED = 4  # channels: an input that is no multiple of them takes slow kernels on several engines
_SPREAD = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85)  # of the networks in the order of their times


@dataclass(frozen=True)
class TimedNetwork:
    """Widths with their latency in nanoseconds.

    `noise` is the relative difference between the medians of alternate rounds.
    """

    widths: tuple[int, ...]
    nanoseconds: float
    noise: float = 0.0

    def to_list(self) -> list[Any]:
        """Return plain values for JSON; `from_list` is the inverse."""
        return [list(self.widths), self.nanoseconds, self.noise]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> TimedNetwork:
        """Return the network that `to_list` wrote."""
        widths, nanoseconds, noise = values
        return cls(tuple(map(int, widths)), float(nanoseconds), float(noise))


@dataclass(frozen=True)
class Term:
    """`coefficient` nanoseconds times a polynomial of the widths, each rounded up to a multiple of `block`.

    `misaligned` is the number of a layer's input group, or None. If set, the term counts only where that group's width
    is not a multiple of `alignment`; each monomial of the polynomial then contains the group.
    """

    coefficient: float
    block: int
    polynomial: Polynomial
    misaligned: int | None = None
    alignment: int = ALIGNED

    def __call__(self, widths: IntArray) -> FloatArray:
        """Return values at `widths`, `(candidates, groups)` -> `(candidates,)`."""
        counted = in_blocks(widths, self.block)
        if self.misaligned is not None:
            counted[:, self.misaligned] *= widths[:, self.misaligned] % self.alignment != 0
        return self.coefficient * self.polynomial(counted).astype(np.float64)

    def tables(self, choices: Sequence[IntArray]) -> dict[tuple[int, ...], FloatArray]:
        """Return the values as a sum of tables: distinct ascending groups -> one axis over the `choices` of each."""
        counted = [in_blocks(widths, self.block).astype(np.float64) for widths in choices]
        if self.misaligned is not None:
            counted[self.misaligned] *= choices[self.misaligned] % self.alignment != 0
        return {scope: self.coefficient * table for scope, table in self.polynomial.tables(counted).items()}


def in_blocks(widths: IntArray, block: int) -> IntArray:
    """Round widths up to multiples of `block`."""
    return -(-widths // block) * block


@dataclass(frozen=True)
class LatencyModel:
    """Result of `calibrate`: predicts the latency of any widths of one network on one machine.

    `space` is the fingerprint of the network's layers, `machine` describes where it was measured, and `form` names the
    features chosen by cross-validation. `error` is the median and `worst` the 90 % quantile of the relative error on
    networks not used in the fit. `margin` turns a prediction into an upper bound. `original` is the original network's
    latency in nanoseconds. `measured` lists all timed networks, the original first.
    """

    space: str
    machine: str
    form: str
    constant: float
    terms: tuple[Term, ...] = field(repr=False)
    error: float
    worst: float
    margin: float
    original: float
    measured: tuple[TimedNetwork, ...] = field(default=(), repr=False)

    @property
    def count(self) -> int:
        """Return the number of measured networks."""
        return len(self.measured)

    @property
    def references(self) -> tuple[TimedNetwork, ...]:
        """Return the networks by which another machine is compared: the original and some others from fast to slow."""
        order = sorted(self.measured, key=lambda m: m.nanoseconds)
        chosen = [order[int(share * (len(order) - 1))] for share in _SPREAD] if order else []
        return tuple(dict.fromkeys((*self.measured[:1], *chosen)))

    def predict(self, widths: IntArray) -> FloatArray:
        """Return expected nanoseconds, `(candidates, groups)` -> `(candidates,)`."""
        return np.asarray(sum((term(widths) for term in self.terms), np.full(len(widths), self.constant)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers for JSON; `from_dict` is the inverse."""
        terms = [[t.coefficient, t.block, t.polynomial.to_list(), t.misaligned, t.alignment] for t in self.terms]
        measured = [network.to_list() for network in self.measured]
        return {**{name: getattr(self, name) for name in _PLAIN}, "terms": terms, "measured": measured}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LatencyModel:
        """Return the model that `to_dict` wrote.

        Raises:
            KeyError, TypeError, ValueError: the data have another form.
        """
        terms = tuple(
            Term(float(c), int(block), Polynomial.from_list(p), None if group is None else int(group), int(alignment))
            for c, block, p, group, alignment in data["terms"]
        )
        measured = tuple(TimedNetwork.from_list(values) for values in data["measured"])
        model = cls(**{name: data[name] for name in _PLAIN}, terms=terms, measured=measured)
        numbers = (model.constant, model.margin, model.original, *(term.coefficient for term in terms))
        if not all(np.isfinite(number) and number >= 0 for number in numbers):
            raise ValueError("coefficients are finite numbers of at least 0")
        if not all(np.isfinite(network.nanoseconds) and network.nanoseconds > 0 for network in measured):
            raise ValueError("times are positive and finite")
        return model


_PLAIN = ("space", "machine", "form", "constant", "error", "worst", "margin", "original")


@dataclass(frozen=True)
class Latency(Measure):
    """Latency of one batch on an engine, in nanoseconds. `model` is fitted before the first stage of a run.

    `engine` runs the network on `threads` threads with `batch` inputs at once, quantised if the name ends in ":int8".
    "other" is a device whose times are given in a file. Measures that differ only in the model compare equal: the limit
    is on the engine's time, however it is predicted.

    Example: `Budget(latency="2 ms")`, or `Budget({Latency("onnxruntime", threads=2): "2 ms"})`, on the command line
    `--budget latency:onnxruntime:2=2ms`, or `--budget latency:litert:int8=2ms`.
    """

    name: ClassVar[str] = "latency"
    unit: ClassVar[str] = "latency"
    scales: ClassVar[Mapping[str, float]] = MappingProxyType({"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9})
    example: ClassVar[str] = "2 ms"

    engine: Engine = "torch"
    threads: int = 1
    batch: int = 1
    model: LatencyModel | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.engine not in get_args(Engine):
            raise BudgetError(f"an engine must be one of {', '.join(get_args(Engine))}; got {self.engine!r}")
        for name in ("threads", "batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BudgetError(f"the {name} of a latency budget must be an int of at least 1; got {value!r}")

    @property
    def description(self) -> str:
        """Text form of the measure: "latency", "latency:onnxruntime", "latency:torch:2:8"."""
        return measure_name(self.name, (self.engine, self.threads, self.batch), ("torch", 1, 1))

    @property
    def countable(self) -> bool:
        """Return whether a model is fitted."""
        return self.model is not None

    @classmethod
    def read_settings(cls, words: Sequence[str]) -> list[int | str]:
        """See `Measure`; "int8" belongs to the engine before it, as in "litert:int8"."""
        if words[1:2] == ["int8"]:
            words = [":".join(words[:2]), *words[2:]]
        return super().read_settings(words)

    @property
    def monotone(self) -> bool:
        """See `Measure`; False if misaligned inputs cost extra."""
        return self.model is None or all(term.misaligned is None for term in self.model.terms)

    def values(self, space: Measured, widths: IntArray) -> FloatArray:
        """See `Measure`; values are upper bounds."""
        model = self._model()
        return (1 + model.margin) * model.predict(widths)

    def constraints(self, space: Measured) -> tuple[Tables]:
        """See `Measure`."""
        model = self._model()
        tables: dict[tuple[int, ...], FloatArray] = defaultdict(lambda: np.zeros(()))
        tables[()] = np.asarray((1 + model.margin) * model.constant)
        choices = [np.array(g.choices) for g in space.groups]
        for term in model.terms:
            for scope, table in term.tables(choices).items():
                tables[scope] = tables[scope] + (1 + model.margin) * table
        return (dict(tables),)

    def of_original(self, value: float) -> float:
        """See `Measure`; the measured latency of the original."""
        return self.model.original if self.model is not None and self.model.original else value

    def limit(self, text: str) -> int | float:
        """See `Measure`; a time needs a unit."""
        found = super().limit(text)
        if isinstance(found, int) and not text.strip()[-1].isalpha():
            raise BudgetError(f"a limit on latency must be a ratio such as 0.5 or a time such as 2 ms; got {text!r}")
        return found

    def text(self, value: float) -> str:
        """See `Measure`; in milliseconds."""
        return self.figure(value)

    def figure(self, value: float) -> str:
        """See `Measure`; in milliseconds."""
        return f"{value / 1e6:.3g} ms"

    def _model(self) -> LatencyModel:
        return self.model if self.model is not None else _not_calibrated(self)


def _not_calibrated(measure: Latency) -> NoReturn:
    raise RunError(
        f"{measure.description} is predicted by a model that is fitted to measurements; there is none here: run "
        "`bcnet calibrate`, and give its file as --latency-model"
    )


def read_latency(path: str | Path) -> Latency:
    """Return the measure, with its model, from a file that `bcnet calibrate` wrote.

    Raises:
        BudgetError: no such file, or it has another content.

    Example: `Budget({bcnet.read_latency("phone.json"): "2 ms"})`
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        return Latency(data["engine"], data["threads"], data["batch"], LatencyModel.from_dict(data["model"]))
    except OSError as error:
        raise BudgetError(
            f"a latency model must be a file of `bcnet calibrate`; {path} cannot be read: {error}"
        ) from None
    except (KeyError, TypeError, ValueError, UnicodeDecodeError) as error:
        raise BudgetError(
            f"a latency model must be a file of `bcnet calibrate`; {path} is not one ({error!r})"
        ) from None


LATENCY = Latency()
