"""Architecture as data: widths and sliced layouts in a small JSON document.

The document holds no code and no weights. `rebuild` makes the narrow network with the user's own constructor. If that
constructor has changed, `rebuild` refuses and names the first difference.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError
from torch import nn

from bcnet.errors import ModelError
from bcnet.space import Polynomial, Segment, WidthGroup, WidthSpace
from bcnet.space.compiled import undo_compile
from bcnet.space.layout import Layout, follows_widths
from bcnet.space.narrowing import tensors_of
from bcnet.space.options import MOST_WIDENING
from bcnet.space.widening import with_tops
from bcnet.supernet.build import build, own_space


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Group(_Strict):
    name: str
    width: PositiveInt
    max_width: PositiveInt
    unit: PositiveInt


class _Segment(_Strict):
    group: NonNegativeInt | None
    size: PositiveInt
    per_channel: PositiveInt


class _Document(_Strict):
    """Every tensor of the full network, its dimensions as segments."""

    format: Literal["bcnet-architecture"]
    version: Literal[1]
    model: str
    space: str
    macs: NonNegativeInt
    params: NonNegativeInt
    groups: list[_Group]
    tensors: dict[str, list[list[_Segment]]]
    numbers: dict[str, list[_Segment]] = {}  # integer attributes of modules, as in `WidthSpace.numbers`


def describe(model: nn.Module, space: WidthSpace, widths: Sequence[int], *, reference: str = "") -> dict[str, Any]:
    """Return the architecture at `widths` as a document for `json.dump`.

    Args:
        model: the network `space` was traced from.
        space: the model's width space, or the widened one.
        widths: one width per group.
        reference: how to get the model, for people (`torchvision:resnet50`); it is never imported.

    Raises:
        WidthError: the widths do not fit the space.
    """
    cost = space.cost(widths)
    fingerprint = space.fingerprint()
    space = own_space(model, space)
    groups = [
        {"name": g.name, "width": int(w), "max_width": g.max_width, "unit": g.unit}
        for g, w in zip(space.groups, widths, strict=True)
    ]
    tensors = {}
    for name, tensor in tensors_of(model).items():
        if tensor.numel():
            held = tuple((Segment(None, size),) for size in tensor.shape)
            tensors[name] = [_segments(dim) for dim in space.layouts.get(name, held)]
    document: dict[str, Any] = {
        "format": "bcnet-architecture",
        "version": 1,
        "model": reference or type(model).__name__,
        "space": fingerprint,
        "macs": cost.macs,
        "params": cost.params,
        "groups": groups,
        "tensors": tensors,
    }
    if space.numbers:
        document["numbers"] = {key: _segments(layout) for key, layout in space.numbers.items()}
    return document


def _segments(layout: Layout) -> list[dict[str, Any]]:
    return [{"group": s.group, "size": s.size, "per_channel": s.per_channel} for s in layout]


def _layout(segments: Sequence[_Segment]) -> Layout:
    return tuple(Segment(s.group, s.size, s.per_channel) for s in segments)


def rebuild(
    source: Mapping[str, Any] | str | Path,
    factory: Callable[[], nn.Module],
    *,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return the freshly initialised narrow network of a document, made by the user's constructor of the full network.

    Args:
        source: the result of `describe`, or the path of its JSON file.
        factory: returns the full network.
        generator: source of the initial weights (CPU; default: seed 0).

    Raises:
        ModelError: the file or document is invalid, or the factory's network differs from the described one; the
            message names the first difference.

    Example: `rebuild("runs/half/architecture.json", torchvision.models.resnet50).load_state_dict(weights)`
    """
    document = _read(source)
    model = factory()
    if not isinstance(model, nn.Module):
        raise ModelError(f"a factory makes a torch.nn.Module; got {type(model).__name__}")
    model = undo_compile(model)
    _check_same(document, model)
    _check_numbers(document, model)
    layouts = {name: tuple(map(_layout, dims)) for name, dims in document.tensors.items()}
    own = WidthSpace(
        groups=tuple(WidthGroup(g.name, g.max_width, g.unit, (g.max_width,)) for g in document.groups),
        macs_terms=Polynomial({}),
        params_terms=Polynomial({}),
        layouts={name: dims for name, dims in layouts.items() if any(map(follows_widths, dims))},
        numbers={key: _layout(segments) for key, segments in document.numbers.items()},
    )
    widths = tuple(g.width for g in document.groups)
    tops = tuple(max(g.width, g.max_width) for g in document.groups)
    space = own if tops == own.full else dataclasses.replace(with_tops(own, tops), own_widths=own.full)
    return build(model, space, widths, factory=factory, generator=generator)


def _read(source: Mapping[str, Any] | str | Path) -> _Document:
    rule = "an architecture is a JSON document written by bcnet"
    try:
        if not isinstance(source, Mapping):
            source = json.loads(Path(source).read_text())
        document = _Document.model_validate(source)
    except OSError as error:
        raise ModelError(f"{rule}; {source} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise ModelError(f"{rule}; {place}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{rule}; {source} is not JSON: {error}") from None
    # The document may come from elsewhere, so everything that sizes a tensor is checked before one is made.
    for group in document.groups:
        if group.width > MOST_WIDENING * group.max_width or group.width % group.unit or group.max_width % group.unit:
            raise ModelError(
                f"{rule}; group {group.name!r} has width {group.width} of {group.max_width} in units of {group.unit}"
            )
    dims_of = {**document.tensors, **{key: [layout] for key, layout in document.numbers.items()}}
    for name, dims in dims_of.items():
        for segment in (s for dim in dims for s in dim if s.group is not None):
            assert segment.group is not None
            if segment.group >= len(document.groups):
                raise ModelError(f"{rule}; {name!r} names group {segment.group} of {len(document.groups)}")
            if segment.size != document.groups[segment.group].max_width * segment.per_channel:
                raise ModelError(f"{rule}; tensor {name!r} has a segment that is not as long as its group")
    return document


def _check_numbers(document: _Document, model: nn.Module) -> None:
    """Raise ModelError unless every width-dependent attribute has the value in the document."""
    for key, segments in document.numbers.items():
        prefix, _, attribute = key.rpartition(":")
        name, _, index = attribute.partition(".")
        expected = sum(segment.size for segment in segments)
        part = dict(model.named_modules()).get(prefix)
        value = None if part is None else vars(part).get(name)
        if index:
            value = (
                value[int(index)] if isinstance(value, (tuple, list)) and index in map(str, range(len(value))) else None
            )
        if value != expected or isinstance(value, bool):
            raise ModelError(
                f"the network must be the one described ({document.model}); the attribute {key} was {expected}, "
                f"got {value!r}"
            )


def _check_same(document: _Document, model: nn.Module) -> None:
    rule = f"the network must be the one described ({document.model})"
    found = {name: tuple(tensor.shape) for name, tensor in tensors_of(model).items() if tensor.numel()}
    described = {name: tuple(sum(s.size for s in dim) for dim in dims) for name, dims in document.tensors.items()}
    for name in [*described, *found]:
        if name not in found:
            raise ModelError(f"{rule}; it has no tensor {name!r} any more")
        if name not in described:
            raise ModelError(f"{rule}; tensor {name!r} is new")
        if found[name] != described[name]:
            raise ModelError(f"{rule}; tensor {name!r} had shape {described[name]}, got {found[name]}")
