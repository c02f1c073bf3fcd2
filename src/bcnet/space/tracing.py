"""Tracing: from a model to its width space.

The model is exported in both modes. Labels are propagated through both graphs, and tied dimensions become width groups.
Then the result is tested: narrow paths are run in both modes, and a group that breaks the model's own code is pinned at
full width with the resulting error.
"""

from __future__ import annotations

import copy
import dataclasses
import io
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from bcnet.errors import TraceError, first_line
from bcnet.pytree import contiguous
from bcnet.space.compiled import undo_compile
from bcnet.space.diagnosis import check_closures, lazy_layer, why_no_copy, why_no_export
from bcnet.space.example import Example, unknown_arguments
from bcnet.space.groups import with_bounds
from bcnet.space.labels import Propagation
from bcnet.space.narrowing import tensors_of
from bcnet.space.options import SpaceOptions, matches
from bcnet.space.propagation import propagate
from bcnet.space.solution import SINGLE, Solution
from bcnet.space.space import WidthSpace
from bcnet.space.stored import MOST_GROUPS, StoredNumbers
from bcnet.space.symbols import Reason
from bcnet.space.trial import MODES, GroupTrials, without_log
from bcnet.space.widening import check_runs, widen

_TIED_BY_CODE = Reason("tied by the model's own code to what is pinned")
_SHAPES = re.compile(r"shape|size|dimension|channels|input|mat1", re.IGNORECASE)  # in errors caused by a wrong size


def trace(model: nn.Module, example: Example, options: SpaceOptions) -> WidthSpace:
    """Implement `WidthSpace.trace` for its arguments."""
    model = _copy_model(model, example)
    # A copy per export: what a forward caches for the next call, such as anchors, are tensors of that export.
    graphs = [_export(copy.deepcopy(model).train(training), example) for training in MODES]
    propagation = _propagate(model, graphs, options)
    # Group convolutions whose groups cannot be kept or removed as a whole may still be narrowed within each group.
    held = frozenset(
        name
        for name, out in propagation.grouped
        if any(
            piece.atoms == 1 or propagation.symbols.reason(piece.variable) for piece in propagation.symbols.resolve(out)
        )
    )
    # The graph does not say what code meant by a shape or a split, so further interpretations are tried if the first
    # one pins dimensions that the user could free.
    readings: list[dict[str, Any]] = []  # alternative interpretations of ambiguous graphs
    if held:
        readings.append({"within": held})
    if propagation.has_made:
        readings.append({"made_alike": True})
    if propagation.has_divided:
        readings.append({"channels_first": True})
    others = (_propagate(model, graphs, options, **reading) for reading in readings)
    space = _freest_space(model, example, chain((propagation,), others), options)
    if options.widen > 1:
        wide = widen(space, options)
        check_runs(model, example, space, wide)
        space = wide
    if isinstance(options.multiple_of, Mapping):
        space.check_named(options.multiple_of)
    return space.with_choices(options.choices)


def _propagate(
    model: nn.Module,
    graphs: Sequence[ExportedProgram],
    options: SpaceOptions,
    **reading: Any,
) -> Propagation:
    """Propagate labels through the graphs of both modes, with the user's options."""
    propagation = Propagation(tensors_of(model), vary_outputs=options.vary_outputs, **reading)
    for training, graph in zip(MODES, graphs, strict=True):
        propagate(propagation, graph, count_macs=not training)
    _tie_attention(propagation, model)
    _apply_wishes(propagation, options)
    return propagation


def _tie_attention(propagation: Propagation, model: nn.Module) -> None:
    """Tie the inputs of `nn.MultiheadAttention` to its projections, since one `embed_dim` counts both."""
    for name, part in model.named_modules():
        weight = propagation.tensors.get(f"{name}.in_proj_weight" if name else "in_proj_weight")
        if isinstance(part, nn.MultiheadAttention) and weight is not None and id(weight) in propagation.used:
            projected, read = weight.dims
            if projected is not None and read is not None:
                propagation.symbols.unify(projected, read * 3, Reason("attention over what is pinned at full width"))


def _freest_space(
    model: nn.Module, example: Example, attempts: Iterable[Propagation], options: SpaceOptions
) -> WidthSpace:
    """Return the first space without pinned groups, else the one with the fewest; else raise the first error.

    Among equals, it is the one whose reasons include a remedy.
    """
    spaces: list[WidthSpace] = []
    errors = []
    for propagation in attempts:
        try:
            spaces.append(_try_widths(model, example, propagation, options))
        except TraceError as error:
            errors.append(error)
            continue
        if not any(dimension.remedy or dimension.reason == SINGLE for dimension in spaces[-1].fixed):
            break
    if not spaces:
        raise errors[0]
    return min(spaces, key=lambda space: (len(space.fixed), sum(not dimension.remedy for dimension in space.fixed)))


def _try_widths(model: nn.Module, example: Example, propagation: Propagation, options: SpaceOptions) -> WidthSpace:
    """Return the space without the groups that break the model's own code.

    Raises:
        TraceError: nothing can be searched; the message says why.
    """
    parameters = {name for name, _ in model.named_parameters()}
    solution = Solution(propagation, options)
    space = solution.space(parameters, batch=example.batch)

    trials = GroupTrials(model, example, solution.outputs(), checks_slices=propagation.has_shares)
    # Guesses may fail at many places at once, and each failing group costs several runs of the network.
    is_guess = propagation.made_alike or propagation.channels_first
    if is_guess and len(space.groups) > MOST_GROUPS and not trials.runs(space, ()):
        raise TraceError("a large network does not run as it was read")  # finding the failing parts would take too long
    stored = StoredNumbers(model, space)
    broken = trials.find_broken(space)
    # First repair what fails by setting stored channel counts, which frees groups without restricting them.
    needed = stored.select_kinds(space, broken, trials)
    numbered = space.with_numbers(stored.layouts(needed))
    if needed:
        broken = trials.find_broken(numbered)
    # Then allow a group that fails with one unit but runs with its first choice, as after standardising by batch
    # norm.
    bounded = _first_choices(space, broken)
    if bounded:
        still = trials.find_broken(dataclasses.replace(numbered, groups=with_bounds(space.groups, bounded)))
        unmended = {space.groups[g].name for g in still}
        bounded = {name: bound for name, bound in bounded.items() if name not in unmended}
        broken = still
    if 1 < len(broken) <= MOST_GROUPS:
        # Then tie groups whose equal or proportional widths the code assumes.
        alike = trials.find_alike(numbered, broken)
        if not alike:
            numbers, sets = stored.counted_alike(broken)
            alike = trials.find_alike(numbered.with_numbers(numbers), broken, sets)
        for groups in alike:
            narrowest, *others = sorted(groups, key=lambda group: space.groups[group].max_width)
            for other in others:
                times = space.groups[other].max_width // space.groups[narrowest].max_width
                propagation.symbols.unify(solution.dims[narrowest] * times, solution.dims[other], _TIED_BY_CODE)
        if alike:
            # Ties merge groups, so everything is solved and tested again.
            return _try_widths(model, example, propagation, options)
    # Only groups that nothing has repaired are pinned.
    for group, reason in broken.items():
        propagation.fix(solution.dims[group], reason)
    if broken:
        space = Solution(propagation, options).space(parameters, batch=example.batch)
    space = dataclasses.replace(space, groups=with_bounds(space.groups, bounded))
    if broken:
        stored = StoredNumbers(model, space)
    # Attributes that forward never reads are set too, for other methods of the model such as a switch to deployment.
    unread = stored.unread_kinds(trials.run_as_it_is) if stored.kinds else frozenset()
    return space.with_numbers(stored.layouts(needed, unread - set(needed)))


def _first_choices(space: WidthSpace, broken: Iterable[int]) -> dict[str, int]:
    """Return the first choices of failing groups by name, if they are above the single unit that was tried."""
    groups = [space.groups[g] for g in broken]
    return {group.name: group.choices[0] for group in groups if group.unit < group.choices[0] < group.max_width}


def _apply_wishes(propagation: Propagation, options: SpaceOptions) -> None:
    """Pin and tie what the user asked for."""
    layers = dict.fromkeys(layer for _, layer in propagation.births if layer)
    for option, patterns in (
        ("ignore", options.ignore),
        ("only", options.only),
        ("min_width", tuple(options.min_width) if isinstance(options.min_width, Mapping) else ()),
        *(("ties", tie) for tie in options.ties),
    ):
        for pattern in patterns:
            if not any(matches(pattern, layer) for layer in layers):
                names = ", ".join(layer.removesuffix(".weight") for layer in layers)
                raise TraceError(f"{option} must name layers of the network; got {pattern!r}: the layers are {names}")
    for dim, layer in propagation.births:
        ignored = next((pattern for pattern in options.ignore if matches(pattern, layer)), None)
        if ignored is not None:
            propagation.fix(dim, Reason(f"excluded by ignore={ignored!r}"))
        elif options.only and not any(matches(pattern, layer) for pattern in options.only):
            propagation.fix(dim, Reason(f"{layer.removesuffix('.weight')} is not among only={options.only!r}"))
    for tie in options.ties:
        _tie(propagation, tie)


def _tie(propagation: Propagation, patterns: tuple[str, ...]) -> None:
    tied = [dim for dim, layer in propagation.births if any(matches(pattern, layer) for pattern in patterns)]
    sizes = {sum(piece.size for piece in dim) for dim in tied}
    if len(sizes) > 1:
        raise TraceError(f"ties need layers of equal width; got {sorted(sizes)} for {patterns}")
    for dim in tied[1:]:
        propagation.symbols.unify(tied[0], dim, Reason(f"tied by ties={patterns!r} to what is pinned"))


def _copy_model(model: nn.Module, example: Example) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise TraceError(f"trace needs a torch.nn.Module; got {type(model).__name__}: pass the network itself")
    model = undo_compile(model)
    check_closures(model, example.run)
    copied = copy_network(model)
    for tensor in (*copied.parameters(), *copied.buffers()):
        if tensor.ndim > 3:
            tensor.data = contiguous(tensor.data)
    return copied


def copy_network(model: nn.Module) -> nn.Module:
    """Return a copy of a network.

    Raises:
        TraceError: it has layers without weights yet, or something that cannot be copied.
    """
    lazy = lazy_layer(model)
    if lazy is not None:
        raise TraceError(
            f"a network to trace must have all its weights; {lazy} has none yet: run it once on an example before"
        )
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise TraceError(f"a network must be copied before it is traced; {why_no_copy(model, error)}") from error


def _export(model: nn.Module, example: Example) -> ExportedProgram:
    try:
        quiet = io.StringIO()  # a failing export prints its graph
        with warnings.catch_warnings(), without_log(), redirect_stdout(quiet), redirect_stderr(quiet):
            warnings.simplefilter("ignore")
            return torch.export.export(model, example.args, dict(example.kwargs), strict=False)
    except Exception as error:
        raise TraceError(
            f"{type(model).__name__} must run on the example input, shape {example.shapes}, and export by "
            f"torch.export; {_what_failed(model, example, error)}"
        ) from error


def _what_failed(model: nn.Module, example: Example, export_error: Exception) -> str:
    try:
        with torch.no_grad():
            example.run(model)
    except Exception as error:
        advice = ": check the shape (batch, channels, height, width)" if _SHAPES.search(str(error)) else ""
        unknown = unknown_arguments(model, example.kwargs)
        if unknown:
            advice = (
                ": a dict of inputs is passed as keyword arguments, so forward needs a parameter for each key; "
                f"it has none for {', '.join(unknown)}"
            )
        return f"running it failed: {first_line(error)}{advice}"
    return f"it runs, but {why_no_export(model, export_error)}"
