"""The width space: a network's width groups in order, with the widths that each may take (the paper's C_K)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bcnet.costs import MACS, PARAMS, Budget, Cost, IntArray, Measure, Polynomial, check_budget, one_budget
from bcnet.display import table
from bcnet.errors import BudgetError, WidthError
from bcnet.space.groups import FixedDimension, WidthGroup, complement, with_choices
from bcnet.space.layers import LayerTerms
from bcnet.space.layout import Layout, ParameterLayout
from bcnet.space.options import BALANCE_EXPONENT, Multiples, SpaceOptions, as_tuple

if TYPE_CHECKING:
    from torch import nn

Widths = tuple[int, ...]
_SHOWN = 3  # operators in one message


@dataclass(frozen=True, repr=False)
class WidthSpace:
    """The searchable widths of a network, and the cost of any widths. Made by `WidthSpace.trace`.

    A candidate is a tuple of ints, one width per group. Any multiples of a group's unit up to `max_width` have a cost
    and can be run; a search draws from `choices`. `layers` holds each layer's share of the costs. `live_terms` are the
    elements of simultaneously live tensors for one input, at every moment that may have the maximum. `uncounted` lists
    operators whose products are not part of the multiply-adds, with their places. `layouts` are those of
    width-dependent tensors. `numbers` are those of int attributes of modules that follow the widths, as
    `MODULE:ATTRIBUTE` or `MODULE:ATTRIBUTE.INDEX`.
    """

    groups: tuple[WidthGroup, ...]
    macs_terms: Polynomial
    params_terms: Polynomial
    live_terms: tuple[Polynomial, ...] = field(default=(), repr=False)
    layouts: Mapping[str, ParameterLayout] = field(default_factory=dict, repr=False)
    numbers: Mapping[str, Layout] = field(default_factory=dict, repr=False)
    fixed: tuple[FixedDimension, ...] = ()
    layers: tuple[LayerTerms, ...] = field(default=(), repr=False)
    uncounted: tuple[str, ...] = ()
    original: Cost | None = None  # these two are set in the space of a widened copy of the original
    own_widths: Widths | None = None
    measures: tuple[Measure, ...] = field(default=(), compare=False)  # in costs, besides MACs and parameters

    @classmethod
    def trace(
        cls,
        model: nn.Module,
        example_input: Any,
        *,
        example_kwargs: Mapping[str, Any] | None = None,
        num_choices: int = 20,
        min_ratio: float = 0.0,
        min_width: int | Mapping[str, int] | None = None,
        multiple_of: Multiples = "fast",
        ignore: Sequence[str] = (),
        only: Sequence[str] = (),
        ties: Sequence[Sequence[str]] = (),
        choices: Mapping[str, Sequence[int]] | None = None,
        vary_outputs: bool = False,
        widen: float = 1.0,
    ) -> WidthSpace:
        """Find the width groups of `model` by exporting its graph on `example_input`, usually `(batch >= 2, ...)`.

        A batch of one is repeated. The model is not changed. Dimensions that cannot be sliced safely are pinned at full
        width and listed in `fixed` with the reason.

        Args:
            model: any network that `torch.export` can export.
            example_input: the input of its `forward`: a tensor, a tuple of all positional arguments, each any pytree
                of tensors, or a dict of keyword arguments.
            example_kwargs: keyword arguments, likewise.
            num_choices: `K` of the choices `floor(l * k / K)`, k = 1..K.
            min_ratio: smallest width of every group, as a share of its full width.
            min_width: smallest width of every group, or a mapping from patterns (`layer4.*`). Groups with fewer
                channels are pinned.
            multiple_of: every choice except the full width is a multiple of this (16 for tensor cores), and so are
                Uniform and balanced widths. A mapping sets it by group; groups it does not name are free. "fast" means
                multiples of 8 from 64 channels and of 4 from 16 channels, which engines run fast; 1 means any width.
            ignore: patterns (`layer4.*`) of layers that are pinned at full width; a pattern may match a parameter, a
                layer or a module around it.
            only: patterns of the layers to search; a group is searched if all layers that produce it match.
            ties: sequences of layers that must keep the same channels, in addition to those that the network ties.
            choices: your own choices for the groups named.
            vary_outputs: allow the channels of the network's outputs to change (for a backbone whose head you adapt).
            widen: trace the space of a network this many times as wide, up to 4. `reference` and ratios of a budget
                still refer to `model`. The paper uses 1.5 to search at 1.0 of its multiply-adds.

        Raises:
            TraceError: the model does not run on the input, cannot be exported, or has nothing to search; a pattern or
                tie names no layer, or ties layers of different sizes; the code fails when widened.
            WidthError: a setting out of range.

        """
        from bcnet.space.example import Example
        from bcnet.space.tracing import trace

        options = SpaceOptions(
            num_choices=num_choices,
            min_ratio=min_ratio,
            min_width=dict(min_width) if isinstance(min_width, Mapping) else min_width,
            multiple_of=dict(multiple_of) if isinstance(multiple_of, Mapping) else multiple_of,
            ignore=as_tuple(ignore),
            only=as_tuple(only),
            ties=tuple(as_tuple(tie) for tie in ties),
            choices=dict(choices or {}),
            vary_outputs=vary_outputs,
            widen=widen,
        )
        return trace(model, Example.of(model, example_input, example_kwargs), options)

    @property
    def full(self) -> Widths:
        """Widest widths."""
        return tuple(group.max_width for group in self.groups)

    @property
    def original_widths(self) -> Widths:
        """Widths of the original network: `full`, unless the space is widened."""
        return self.full if self.own_widths is None else self.own_widths

    @property
    def narrowest(self) -> Widths:
        """Smallest choice of every group: the cheapest network that a search can return."""
        return tuple(group.choices[0] for group in self.groups)

    @property
    def reference(self) -> Cost:
        """Cost of the original network, to which ratios of a budget refer."""
        return self.cost(self.full) if self.original is None else self._of_original(self.original)

    def _of_original(self, original: Cost) -> Cost:
        """Return the cost of the original; in a widened space, that of its own widths."""
        if not self.measures:
            return original
        return dataclasses.replace(original, others=self.cost(self.original_widths).others)

    def cost(self, widths: Sequence[int] | IntArray) -> Cost:
        """Return the exact cost of `widths`: ints for one tuple, int64 arrays for an array `(candidates, groups)`.

        Raises:
            WidthError: a width is not a positive multiple of its group's unit or too large, or the count is wrong.
        """
        array = np.asarray(widths)
        many = array.ndim == 2
        if not many:
            self.check(widths)  # type: ignore[arg-type]
            array = array[None]
        else:
            self._check_array(array)
        array = array.astype(np.int64, copy=False)
        others = {measure.name: measure.values(self, array) for measure in self.measures}
        costs = Cost(MACS.values(self, array), PARAMS.values(self, array), others)
        return costs if many else next(costs.each())

    def with_measures(self, budget: Budget) -> WidthSpace:
        """Return the space with the budget's other measures included in its costs."""
        measures = tuple(budget.others)
        return self if set(measures) <= set(self.measures) else dataclasses.replace(self, measures=measures)

    def check(self, widths: Sequence[int]) -> None:
        """Raise WidthError unless every width is a multiple of its group's unit in `[unit, max_width]`."""
        if isinstance(widths, str) or not isinstance(widths, Sequence | np.ndarray):
            raise WidthError(
                f"widths must be a sequence with one int per group; got {widths!r}: space.uniform(macs=0.5), say"
            )
        if len(widths) != len(self.groups):
            raise WidthError(
                f"widths need one entry per group, {len(self.groups)} here; got {len(widths)}: `bcnet profile` lists "
                "the groups in their order"
            )
        for group, width in zip(self.groups, widths, strict=True):
            whole = isinstance(width, (int, np.integer)) and not isinstance(width, bool)
            if not whole or not group.least <= width <= group.max_width or width % group.unit:
                raise WidthError(
                    f"the width of group {group.name!r} must be an int in [{group.least}, {group.max_width}], "
                    f"a multiple of {group.unit}; got {width!r}"
                )

    def _check_array(self, array: np.ndarray[Any, Any]) -> None:
        if array.shape[1] != len(self.groups) or not np.issubdtype(array.dtype, np.integer):
            raise WidthError(
                f"many widths must be an integer array (candidates, {len(self.groups)}); got {array.dtype} "
                f"{array.shape}"
            )
        units = np.array([g.unit for g in self.groups])
        full = np.array(self.full)
        wrong = (array < np.array([g.least for g in self.groups])) | (array > full)
        if units.max(initial=1) > 1:
            wrong |= array % units != 0
        if wrong.any():
            row = int(np.argmax(wrong.any(axis=1)))
            self.check(tuple(int(w) for w in array[row]))

    def sample(self, generator: torch.Generator) -> Widths:
        """Draw uniform widths: every group's choice independently."""
        return tuple(
            group.choices[int(torch.randint(len(group.choices), (), generator=generator))] for group in self.groups
        )

    def complement(self, widths: Sequence[int], *, bounded: bool = False) -> Widths:
        """Return the complement of every width: `l - c`; full width is its own complement (spec, section 3).

        It may be below the smallest choice `c_min`, since fair training needs widths that a search does not choose.
        `bounded=True` returns `l + c_min - c`, which stays within the choices' range.

        """
        return tuple(complement(g, width, bounded=bounded) for g, width in zip(self.groups, widths, strict=True))

    def nearest(self, widths: Sequence[int]) -> Widths:
        """Return the nearest choice of every group (the wider of two equally near)."""
        if isinstance(widths, str) or not isinstance(widths, Sequence | np.ndarray) or len(widths) != len(self.groups):
            raise WidthError(f"widths must be a sequence with one number per group, {len(self.groups)}; got {widths!r}")
        return tuple(
            min(group.choices, key=lambda choice: (abs(choice - width), -choice))
            for group, width in zip(self.groups, widths, strict=True)
        )

    def scaled(self, ratio: float) -> Widths:
        """Return one ratio of the original widths.

        `floor(ratio * l)` to the step of each group (`WidthGroup.floor`).
        """
        return self.floor([ratio * own for own in self.original_widths])

    def floor(self, widths: Iterable[float]) -> Widths:
        """Return real widths, one per group, rounded down to the group's step (`WidthGroup.floor`)."""
        return tuple(g.floor(width) for g, width in zip(self.groups, widths, strict=True))

    def uniform(
        self,
        budget: Budget | None = None,
        *,
        macs: int | float | None = None,
        params: int | float | None = None,
    ) -> Widths:
        """Return the Uniform baseline: one ratio for all groups, the largest that satisfies the budget.

        Widths are rounded down to multiples of each group's unit. If its step is larger, they are rounded down to the
        step and then up, the largest remainders first, as far as the budget allows.

        Takes either `budget`, or limits on MACs and parameters.

        Raises:
            BudgetError: even the smallest ratio exceeds the budget.
        """
        given = one_budget(budget, macs, params)
        space = self.with_measures(given)
        limits = given.resolve(space.reference)
        ratio = space._largest_ratio(limits)
        if ratio is None:
            raise BudgetError(
                f"a budget must admit the narrowest uniform network, {space.cost_text(self.scaled(0))}; got {limits}: "
                "raise the limit, or choose other widths by balanced or random"
            )
        found = self.scaled(ratio)
        if all(group.step <= group.unit for group in self.groups):
            return found
        plain = dataclasses.replace(space, groups=tuple(dataclasses.replace(g, step=0) for g in self.groups))
        exact = np.array(self.original_widths) * (plain._largest_ratio(limits) or 0)
        remainders = (exact - found) / [g.step or g.unit for g in self.groups]
        for number in np.argsort(-remainders, kind="stable"):
            wider = (*found[:number], self.groups[number].wider(found[number]), *found[number + 1 :])
            if remainders[number] > 0 and limits.admits(space.cost(wider)):
                found = wider
        return found

    def _largest_ratio(self, limits: Budget) -> float | None:
        """Return the largest ratio of the original widths within the limits, or None."""
        pairs = zip(self.groups, self.original_widths, strict=True)
        # No group's width changes between two consecutive ratios, so no ratio in between has to be tried.
        ratios = sorted(
            {
                width / own
                for g, own in pairs
                for width in (*range(g.floor(0), g.max_width, g.step or g.unit), g.max_width)
            }
        )
        if not all(measure.monotone for measure in limits.limits):
            admitted = (r for r in reversed(ratios) if limits.admits(self.cost(self.scaled(r))))
            return next(admitted, None)
        low = 0  # ratios[:low] satisfy the limits: cost grows with the ratio
        high = len(ratios)
        while low < high:
            middle = (low + high) // 2
            if limits.admits(self.cost(self.scaled(ratios[middle]))):
                low = middle + 1
            else:
                high = middle
        return ratios[low - 1] if low else None

    def balanced(
        self,
        budget: Budget | None = None,
        *,
        macs: int | float | None = None,
        params: int | float | None = None,
        exponent: float = BALANCE_EXPONENT,
    ) -> Widths:
        """Return widths that divide the multiply-adds among layers by a formula, without data, weights or training.

        A layer whose weights are applied at `a` positions gets a share proportional to `a ** exponent`: equal
        multiply-adds at 0, equal parameters at 1 (`bcnet.space.balance`).

        Args:
            budget: the limits, or
            macs, params: limits on these.
            exponent: from 0 to 2.

        Raises:
            BudgetError: even one unit in every group exceeds the budget.
            WidthError: an exponent out of range.

        Example: `space.balanced(macs=0.5)`
        """
        from bcnet.space.balance import balanced_widths  # it imports this module

        given = one_budget(budget, macs, params)
        return balanced_widths(self, given, exponent)

    def random(
        self,
        budget: Budget | None = None,
        *,
        macs: int | float | None = None,
        params: int | float | None = None,
        seed: int = 0,
    ) -> Widths:
        """Return random widths near the budget: between 0.97 and 1.0 of it if the choices allow it.

        Raises:
            BudgetError: the narrowest network of the space exceeds the budget.
        """
        from bcnet.space.problem import Problem

        given = one_budget(budget, macs, params)
        problem = Problem.of(self, given, seed)
        (widths,) = problem.fill(1, (), np.random.default_rng([seed, 2]))
        return widths

    def feasible(self, budget: Budget) -> Budget:
        """Return the budget in absolute counts, validated.

        Raises:
            BudgetError: the narrowest network of the space exceeds it; the message names its cost.
        """
        space = self.with_measures(check_budget(budget))
        reference = space.reference
        cheapest = space.cost(self.narrowest)
        limits = budget.resolve(reference)
        if not limits.admits(cheapest):
            names = ("macs", "params", *(measure.name for measure in budget.others))
            ratios = " and ".join(f"{cheapest[name] / reference[name]:.4g}x" for name in names)
            tight = [m.name for m, limit in limits.limits.items() if cheapest[m.name] > limit]
            raise BudgetError(
                f"a budget must admit the narrowest network of the space, {space.cost_text(self.narrowest)} "
                f"({ratios} of the original); got {limits}: raise the limit on {' and '.join(tight)}, or lower "
                "min_ratio or multiple_of"
            )
        return limits

    def cost_text(self, widths: Sequence[int]) -> str:
        """Format the cost of widths."""
        cost = self.cost(widths)
        return " and ".join(measure.text(cost[measure.name]) for measure in (MACS, PARAMS, *self.measures))

    @property
    def uncounted_note(self) -> str:
        """Return a sentence on operators missing from the multiply-adds; "" if they are complete."""
        if not self.uncounted:
            return ""
        more = f" and {len(self.uncounted) - _SHOWN} more" if len(self.uncounted) > _SHOWN else ""
        return (
            f"MACs leave out what these operators multiply: {'; '.join(self.uncounted[:_SHOWN])}{more}. Costs "
            "and ratios are of all the others."
        )

    def with_choices(self, choices: Mapping[str, Sequence[int]]) -> WidthSpace:
        """Return the space with other choices for the groups named.

        Raises:
            WidthError: an unknown group, or a choice that is not a multiple of the unit within the group.
        """
        self.check_named(choices)
        return dataclasses.replace(self, groups=tuple(with_choices(g, choices.get(g.name)) for g in self.groups))

    def with_numbers(self, numbers: Mapping[str, Layout]) -> WidthSpace:
        """Return the space with these entries of `numbers` added or replaced."""
        return dataclasses.replace(self, numbers={**self.numbers, **numbers})

    def check_named(self, names: Iterable[str]) -> None:
        """Raise WidthError unless all are names of groups."""
        unknown = set(names) - {group.name for group in self.groups}
        if unknown:
            raise WidthError(f"no group is named {sorted(unknown)}; the groups are {[g.name for g in self.groups]}")

    def _title(self) -> str:
        cost = self.reference
        return f"{len(self.groups)} width groups: {cost.macs:,} MACs, {cost.params:,} parameters"

    def __repr__(self) -> str:
        lines = [f"  {g.name}: {g.choices[0]} to {g.max_width} channels, {len(g.choices)} choices" for g in self.groups]
        held = [f"  and {len(self.fixed)} dimensions pinned at full width"] if self.fixed else []
        return "\n".join([self._title(), *lines, *held])

    def _repr_html_(self) -> str:
        rows = [(g.name, g.max_width, g.unit, len(g.choices), g.choices[0]) for g in self.groups]
        title = self._title()
        held = [(f.name, f.dim, f.size, f.reason) for f in self.fixed]
        shown = table(title, ("group", "width", "unit", "choices", "narrowest"), rows)
        return shown + table("Pinned at full width", ("parameter", "dimension", "size", "why"), held) if held else shown

    def fingerprint(self) -> str:
        """Return a hash of groups, choices and costs, equal for equal spaces in every process."""
        facts = [
            [[g.name, g.max_width, g.unit, list(g.choices)] for g in self.groups],
            [[list(k), v] for terms in (self.macs_terms, self.params_terms) for k, v in sorted(terms.terms.items())],
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
