"""Solution: the width groups found by a propagation, and every tensor and cost expressed in them."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from bcnet.costs import Polynomial
from bcnet.errors import TraceError
from bcnet.space.groups import FixedDimension, WidthGroup
from bcnet.space.labels import Labels, LiveTensor, MacsEntry, Propagation, owner_of
from bcnet.space.layers import LayerTerms
from bcnet.space.layout import Layout, ParameterLayout, Segment, follows_widths
from bcnet.space.options import SpaceOptions
from bcnet.space.space import WidthSpace
from bcnet.space.symbols import Dim, Piece, Reason

SINGLE = "a single channel"
_SHOWN = 4  # reasons in one message
_NOT_RUN = "not run by the example's call, in neither mode: it will not fit a narrower network that does run it"
_NOT_RUN_REMEDY = "give an example that runs it, or leave that part out of the network"


class Solution:
    """Reads the result of a propagation. `dims[g]` is group `g` as a dimension, for pinning it afterwards."""

    def __init__(self, propagation: Propagation, options: SpaceOptions) -> None:
        self._propagation = propagation
        self._options = options
        resolve = propagation.symbols.resolve
        self._tensors: dict[str, tuple[Dim | None, ...]] = {
            name: tuple(None if dim is None else resolve(dim) for dim in labels.dims)
            for name, labels in propagation.tensors.items()
        }
        self.dims: list[Dim] = [(piece._replace(repeat=1),) for piece in self._searchable_pieces()]
        self._index = {dim[0].variable: group for group, dim in enumerate(self.dims)}
        self._units = self._common_repeats()
        self.groups = self._with_distinct_names(
            self._group(dim[0], unit) for dim, unit in zip(self.dims, self._units, strict=True)
        )

    def space(self, parameters: Set[str], batch: int) -> WidthSpace:
        """Return the width space; `parameters` are the names to count, `batch` the traced batch size."""
        fixed = (*self._pinned_dimensions(), *self._not_run(parameters))
        if not self.groups:
            # Nothing to search is an error whose message has to say what holds every layer.
            held = list(dict.fromkeys(dimension.reason for dimension in fixed))
            more = f"; and {len(held) - _SHOWN} other reasons" if len(held) > _SHOWN else ""
            raise TraceError(
                "a width space needs a layer whose width can change; this network has none"
                + (
                    f" (held by: {'; '.join(held[:_SHOWN])}{more})"
                    if held
                    else ": it has no convolution or linear layer before its output"
                )
            )
        shapes = {name: labels.shape for name, labels in self._propagation.tensors.items()}
        layouts = {name: self._layouts(dims, shapes[name]) for name, dims in self._tensors.items()}
        return WidthSpace(
            groups=self.groups,
            macs_terms=self._macs_for_one(self._propagation.macs, batch),
            params_terms=sum_of_products((1, layouts[name]) for name in sorted(parameters)),
            live_terms=largest(
                sum((self._elements_for_one(tensor, batch) for tensor in live), Polynomial({}))
                for live in self._propagation.live
            ),
            layouts={name: layout for name, layout in layouts.items() if any(map(follows_widths, layout))},
            numbers=dict(self._attribute_layouts()),
            fixed=fixed,
            layers=self._layers({name: layouts[name] for name in layouts if name in parameters}, batch),
            uncounted=tuple(self._propagation.uncounted),
        )

    def _attribute_layouts(self) -> Iterable[tuple[str, Layout]]:
        """Return the layouts of width-dependent attributes of layers without tensors."""
        for key, dim in self._propagation.numbers:
            layout = self._layout(dim)
            if follows_widths(layout):
                yield key, layout

    def outputs(self) -> tuple[tuple[ParameterLayout, ...], ...]:
        """Return the layouts of the output tensors of every propagated graph."""
        return tuple(
            tuple(self._layouts(labels.dims, labels.shape) for labels in graph) for graph in self._propagation.outputs
        )

    def _searchable_pieces(self) -> list[Piece]:
        """Return the free variables that layers produce, in network order."""
        symbols = self._propagation.symbols
        found: dict[int, Piece] = {}
        for dim, _ in self._propagation.births:
            for piece in symbols.resolve(dim):
                if piece.atoms > 1 and symbols.reason(piece.variable) is None:
                    found.setdefault(piece.variable, piece)
        return list(found.values())

    def _pieces(self) -> Iterable[tuple[str, int, Piece]]:
        for name, dims in self._tensors.items():
            for d, dim in enumerate(dims):
                for piece in dim or ():
                    yield name, d, piece

    def _common_repeats(self) -> list[int]:
        """Return the unit of every group: the greatest step that divides all its segments."""
        units = [0] * len(self.dims)
        for _, _, piece in self._pieces():
            group = self._index.get(piece.variable)
            if group is not None:
                units[group] = math.gcd(units[group], piece.repeat)
        return units

    def _group(self, piece: Piece, unit: int) -> WidthGroup:
        options = self._options
        width = piece.atoms * unit
        names = [name for name, _, other in self._pieces() if other.variable == piece.variable]
        name = self._name(piece.variable, names)
        group = WidthGroup(name, width, unit, (width,), members=tuple(dict.fromkeys(names)))
        return options.with_choices(
            dataclasses.replace(group, bound=options.smallest_width(self._producers(piece), group))
        )

    def _producers(self, piece: Piece) -> list[str]:
        """Return the layers that produce channels of a piece's group."""
        resolved = ((layer, self._propagation.symbols.resolve(dim)) for dim, layer in self._propagation.births)
        return [layer for layer, pieces in resolved if layer and any(p.variable == piece.variable for p in pieces)]

    @staticmethod
    def _with_distinct_names(groups: Iterable[WidthGroup]) -> tuple[WidthGroup, ...]:
        """Return the groups, renamed after their tensors where several have the name of one module."""
        found = tuple(groups)
        names = Counter(group.name for group in found)
        return tuple(dataclasses.replace(g, name=g.members[0]) if names[g.name] > 1 else g for g in found)

    def _name(self, variable: int, members: list[str]) -> str:
        """Return the layer that produces the group, with a range if it is only a part of the layer's channels."""
        for dim, layer in self._propagation.births:
            offset = 0
            pieces = self._propagation.symbols.resolve(dim)
            for piece in pieces:
                if piece.variable == variable:
                    name = (layer or members[0]).rpartition(".")[0] or members[0]
                    whole = all(other.variable == variable for other in pieces)
                    return name if whole else f"{name}[{offset}:{offset + piece.size}]"
                offset += piece.size
        return members[0]

    def _layouts(self, dims: tuple[Dim | None, ...], shape: tuple[int, ...]) -> ParameterLayout:
        return tuple(
            (Segment(None, size),) if dim is None else self._layout(dim) for dim, size in zip(dims, shape, strict=True)
        )

    def _layout(self, dim: Dim) -> Layout:
        segments: list[Segment] = []
        for piece in self._propagation.symbols.resolve(dim):
            group = self._index.get(piece.variable)
            if group is not None:
                segments.append(Segment(group, piece.size, piece.repeat // self._units[group]))
            elif segments and segments[-1].group is None:
                segments[-1] = Segment(None, segments[-1].size + piece.size)
            else:
                segments.append(Segment(None, piece.size))
        return tuple(segments)

    def _macs_for_one(self, entries: Iterable[MacsEntry], batch: int) -> Polynomial:
        """Return the multiply-adds of some entries for one input."""
        counted = (sum_of_products([(1, (*self._dims(e.positions), *self._dims(e.weight)))]) for e in entries)
        return sum((for_one_input(polynomial, batch) for polynomial in counted), Polynomial({}))

    def _elements_for_one(self, tensor: LiveTensor, batch: int) -> Polynomial:
        """Return the elements of a tensor for one input; all of them if it depends on weights only."""
        elements = sum_of_products([(1, self._dims(tensor.labels))])
        return for_one_input(elements, batch) if tensor.of_input else elements

    def _dims(self, labels: Labels) -> ParameterLayout:
        return self._layouts(labels.dims, labels.shape)

    def _layers(self, parameters: Mapping[str, ParameterLayout], batch: int) -> tuple[LayerTerms, ...]:
        """Return the layers with multiply-adds in network order, then other owners of parameters."""
        macs: dict[str, list[MacsEntry]] = defaultdict(list)
        for entry in self._propagation.macs:
            macs[entry.layer].append(entry)
        owned: dict[str, list[ParameterLayout]] = defaultdict(list)
        for name, layouts in parameters.items():
            owned[owner_of(name)].append(layouts)
        return tuple(
            LayerTerms(
                name,
                next((self._layout(entry.out) for entry in macs.get(name, ()) if entry.out is not None), None),
                self._macs_for_one(macs.get(name, ()), batch),
                sum_of_products((1, layouts) for layouts in owned.get(name, ())),
            )
            for name in dict.fromkeys((*macs, *owned))
        )

    def _not_run(self, parameters: Set[str]) -> Iterable[FixedDimension]:
        """Return the outputs of layers that the example does not run in either mode."""
        for name, labels in self._propagation.tensors.items():
            if name in parameters and labels.shape and id(labels) not in self._propagation.used:
                yield FixedDimension(name, 0, labels.shape[0], _NOT_RUN, remedy=_NOT_RUN_REMEDY)

    def _pinned_dimensions(self) -> Iterable[FixedDimension]:
        """Return the pinned dimensions that layers read or produce, once per variable."""
        symbols = self._propagation.symbols
        places: dict[int, tuple[str, int, Piece]] = {}
        for name, d, piece in self._pieces():
            places.setdefault(piece.variable, (name, d, piece))
        candidates = [*self._propagation.inputs, *(dim for dim, _ in self._propagation.births)]
        seen: dict[int, None] = dict.fromkeys(p.variable for dim in candidates for p in symbols.resolve(dim))
        for variable in seen:
            if variable in self._index or variable not in places:
                continue
            name, d, piece = places[variable]
            reason = symbols.reason(variable) or Reason(SINGLE)
            if reason.text:
                yield FixedDimension(name, d, piece.size, reason.text, reason.operator, reason.where, reason.remedy)


def largest(polynomials: Iterable[Polynomial]) -> tuple[Polynomial, ...]:
    """Return the polynomials that no other one dominates for all widths; the first of equal ones."""
    kept: list[Polynomial] = []
    for polynomial in polynomials:
        if not any(_at_most(polynomial, other) for other in kept):
            # The new polynomial replaces all that it dominates.
            kept = [*(other for other in kept if not _at_most(other, polynomial)), polynomial]
    return tuple(kept)


def _at_most(one: Polynomial, other: Polynomial) -> bool:
    """Return whether no coefficient is larger; coefficients and widths are positive."""
    return all(other.terms.get(groups, 0) >= value for groups, value in one.terms.items())


def sum_of_products(products: Iterable[tuple[int, Sequence[Layout]]]) -> Polynomial:
    """Return the polynomial `sum coef * prod size(layout)` over `(coef, layouts)` pairs."""
    terms: dict[tuple[int, ...], int] = defaultdict(int)
    for coefficient, layouts in products:
        product = Polynomial({(): coefficient})
        for layout in layouts:
            product = product * _linear_form(layout)
        for groups, value in product.terms.items():
            terms[groups] += value
    return Polynomial(dict(sorted(terms.items())))


def for_one_input(counted: Polynomial, batch: int) -> Polynomial:
    """Return the cost per input, given `counted`, the cost of a batch of `batch` inputs.

    The batch may be folded into any dimension, with or without channels, so only the whole product shows whether it is
    included. Work shared by the inputs of a batch, such as a mean over them, is counted whole unless it is a multiple
    of the batch.
    """
    if any(value % batch for value in counted.terms.values()):
        return counted
    return Polynomial({groups: value // batch for groups, value in counted.terms.items()})


def _linear_form(layout: Layout) -> Polynomial:
    form: dict[tuple[int, ...], int] = defaultdict(int)
    for segment in layout:
        if segment.group is None:
            form[()] += segment.size
        else:
            form[(segment.group,)] += segment.per_channel
    return Polynomial(form)
