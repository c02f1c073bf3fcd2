"""Fit of the latency model: several forms, of which cross-validation selects one.

Times of single layers do not add up to a network's time, so whole networks are fitted, by non-negative least squares on
relative errors. A feature is a sum over layers that share a coefficient, of polynomials in widths rounded up to blocks
of channels, as hardware computes them. Engines take other kernels for inputs of 4, 8 or 16 channels at once, so each
form is also tried with two more features for each of these alignments that some width does not have: the work of layers
with unaligned inputs, with depthwise convolutions separate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bcnet.costs import LatencyModel, Polynomial, Term, TimedNetwork
from bcnet.costs.base import fingerprint
from bcnet.costs.latency import ALIGNED
from bcnet.space import LayerTerms, WidthSpace

if TYPE_CHECKING:
    from bcnet.costs import IntArray

FloatArray = npt.NDArray[np.float64]
Part = tuple[int, Polynomial, int | None, int]  # block, polynomial, misaligned input group, alignment
Feature = tuple[Part, ...]  # parts that share a coefficient

BLOCKS = (1, 4, 8, 16, 32)  # channels that engines compute at once
ALIGNMENTS = (ALIGNED, 8, 16)  # ONNX Runtime's blocks of input channels are 8 with AVX2 and 16 with AVX-512
FOLDS = 6
CERTAIN = 0.9  # share of unseen networks that the margin covers


def fit_model(space: WidthSpace, found: Sequence[TimedNetwork], machine: str, near: int = 0) -> LatencyModel:
    """Return the model of the form with the smallest cross-validation error; `machine` describes the times' origin.

    If the last `near` networks are near the limit that the model is for, the margin is that of their errors.

    The error is the root mean square of the log ratios. Forms of equal median errors differ in how well they order
    networks of equal multiply-adds, and the median hardly tells them apart.
    """
    widths = np.array([m.widths for m in found], dtype=np.int64)
    times = np.array([m.nanoseconds for m in found])
    folds = np.random.default_rng(0).permutation(len(found)) % FOLDS
    best: tuple[float, str, list[Feature], FloatArray] | None = None
    for form, features in forms(space).items():
        errors = _held_out_errors(_columns(features, widths), times, folds)
        score = float(np.sqrt(np.mean(np.log1p(errors) ** 2)))
        if best is None or score < best[0]:
            best = (score, form, features, errors)
    assert best is not None
    _, form, features, errors = best
    coefficients = _fit(_columns(features, widths), times)
    predicted = _columns(features, np.array([space.original_widths])) @ coefficients
    timed = {m.widths: m.nanoseconds for m in found}
    return LatencyModel(
        space=fingerprint(space),
        machine=machine,
        form=form,
        constant=float(coefficients[0]),
        terms=_terms(features, coefficients),
        error=float(np.median(np.abs(errors))),
        worst=float(np.quantile(np.abs(errors), CERTAIN)),
        margin=max(0.0, _conformal(errors[-near:] if near else errors)),
        original=timed.get(space.original_widths, float(predicted[0])),
        measured=tuple(sorted(found, key=lambda m: m.widths != space.original_widths)),
    )


def _terms(features: Sequence[Feature], coefficients: FloatArray) -> tuple[Term, ...]:
    """Return the terms with positive coefficients; the first coefficient is the constant's."""
    return tuple(
        Term(float(coefficient), *part)
        for coefficient, feature in zip(coefficients[1:], features, strict=True)
        if coefficient > 0
        for part in feature
    )


def forms(space: WidthSpace) -> Mapping[str, list[Feature]]:
    """Return the features of each form by name: groups of layers that share a coefficient, and their blocks."""
    layers = [layer for layer in space.layers if layer.macs.terms]
    full = np.array([space.original_widths])
    positions = {layer.name: max(1, round(layer.positions(full))) for layer in layers}
    # Layers on maps of equal area run at a similar speed per multiply-add; depthwise convolutions are slower.
    areas = [(positions[layer.name], _dense(layer)) for layer in layers]
    found: dict[str, list[Feature]] = {"macs": [tuple(_unaligned_part(1, layer.macs) for layer in layers)]}
    every: list[Feature] = []
    for block in BLOCKS:
        work = [_unaligned_part(block, layer.macs) for layer in layers]
        made = tuple(_unaligned_part(block, outputs(layer, positions[layer.name])) for layer in layers)
        weights = tuple(_unaligned_part(block, layer.params) for layer in layers)
        by_area = [*_shared_features(work, areas), made]
        found[f"macs and outputs in {block}"] = [tuple(work), made]
        found[f"kinds in {block}"] = [*_shared_features(work, [dense for _, dense in areas]), made, weights]
        found[f"areas in {block}"] = by_area
        found[f"areas and both in {block}"] = [*by_area, *found["macs"]]
        # Engines mix kernels, so that one form takes the features of all block sizes at once; the fit keeps few of
        # them.
        every += by_area
    found[f"areas in {', '.join(map(str, BLOCKS))}"] = every
    more = {f", and inputs misaligned to {a}": _misalignment_features(space, layers, a) for a in ALIGNMENTS}
    return found | {
        form + suffix: [*features, *added]
        for suffix, added in more.items()
        for form, features in found.items()
        if added
    }


def _unaligned_part(block: int, polynomial: Polynomial) -> Part:
    return block, polynomial, None, ALIGNED


def _misalignment_features(space: WidthSpace, layers: Sequence[LayerTerms], alignment: int) -> list[Feature]:
    """Return the features for inputs that are no multiples of `alignment`; none if all widths are."""
    misaligned = [number for number, group in enumerate(space.groups) if any(c % alignment for c in group.choices)]
    parts = [(part, _dense(layer)) for layer in layers for part in _by_input(layer, alignment) if part[2] in misaligned]
    return _shared_features([part for part, _ in parts], [dense for _, dense in parts])


def _by_input(layer: LayerTerms, alignment: int) -> list[Part]:
    """Return the work of a layer for each group that it reads."""
    made = {segment.group for segment in layer.out or ()}
    terms: dict[int, dict[tuple[int, ...], int]] = {}
    for scope, count in layer.macs.terms.items():
        read = [group for group in scope if group not in made] or list(scope[:1])
        if read:
            terms.setdefault(read[0], {})[scope] = count
    return [(1, Polynomial(polynomial), group, alignment) for group, polynomial in terms.items()]


def _shared_features(work: Sequence[Part], keys: Sequence[object]) -> list[Feature]:
    """Return one feature per key, with the layers that have it."""
    return [tuple(one for one, other in zip(work, keys, strict=True) if other == key) for key in dict.fromkeys(keys)]


def _dense(layer: LayerTerms) -> bool:
    """Return whether inputs and outputs belong to different groups, unlike in a depthwise convolution."""
    return any(len(groups) > 1 for groups in layer.macs.terms)


def outputs(layer: LayerTerms, positions: int) -> Polynomial:
    """Return the number of elements that a layer produces."""
    terms: dict[tuple[int, ...], int] = {}
    for segment in layer.out or ():
        groups = () if segment.group is None else (segment.group,)
        channels = segment.size if segment.group is None else segment.per_channel
        terms[groups] = terms.get(groups, 0) + channels * positions
    return Polynomial(terms)


def _columns(features: Sequence[Feature], widths: IntArray) -> FloatArray:
    """Return the design matrix, `(networks, 1 + features)`."""
    sums = [sum(Term(1.0, *part)(widths) for part in feature) for feature in features]
    return np.column_stack([np.ones(len(widths)), *sums])


def _fit(columns: FloatArray, times: FloatArray) -> FloatArray:
    """Return non-negative coefficients with the smallest sum of squared relative errors."""
    from scipy.optimize import nnls

    scale = columns.max(axis=0)
    found, _ = nnls(columns / scale / times[:, None], np.ones(len(times)))
    return np.asarray(found / scale)


def _held_out_errors(columns: FloatArray, times: FloatArray, folds: npt.NDArray[np.int64]) -> FloatArray:
    """Return each network's relative error (measured over predicted, minus 1) in a fit to the other folds."""
    errors = np.empty(len(times))
    for fold in range(FOLDS):
        held = folds == fold
        predicted = columns[held] @ _fit(columns[~held], times[~held])
        errors[held] = times[held] / np.maximum(predicted, 1e-9) - 1
    return errors


def _conformal(errors: FloatArray) -> float:
    """Return the margin that covers `CERTAIN` of unseen networks: a quantile corrected for a finite sample."""
    rank = min(1.0, np.ceil(CERTAIN * (len(errors) + 1)) / len(errors))
    return float(np.quantile(errors, rank, method="higher"))


def multiples(space: WidthSpace, model: LatencyModel) -> dict[str, int]:
    """Return the channel multiple by group at which the time grows: widths in between cost as much as the next one.

    It is the block size in which most of the time of a group's layers is spent. If fewer than two multiples fit into a
    group, a smaller block is used, since the group could not be narrowed otherwise. Where inputs that are no multiples
    of 4 cost more, it is at least 4; wider alignments do not change it, since the search weighs their cost itself.
    """
    full = np.array([space.original_widths])
    found = {}
    for number, group in enumerate(space.groups):
        spent = dict.fromkeys(BLOCKS, 0.0)
        least = 1
        for term in model.terms:
            if term.misaligned is not None:
                if term.misaligned == number and term.alignment == ALIGNED:
                    least = ALIGNED
                continue
            touching = {scope: c for scope, c in term.polynomial.terms.items() if number in scope}
            if touching:
                spent[term.block] += float(Term(term.coefficient, term.block, Polynomial(touching))(full)[0])
        # Of blocks with equal times the smaller one, which leaves more choices.
        most = max(least, max(BLOCKS, key=lambda block: (spent[block], -block)))
        found[group.name] = max(block for block in BLOCKS if block == 1 or block <= min(most, group.max_width // 2))
    return found
