"""Narrowing: run a module at other widths by replacing its parameters with slices of themselves.

The module's `forward` is unchanged. During a call its parameters are replaced with views, and attributes that depend on
them (`groups`, `normalized_shape`, ...) with matching values.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils import checkpoint

from bcnet.space.layout import Layout, ParameterLayout, Side, length, spans

# Swapped parameters are visible to everyone who calls the module, and several narrowings may share one module, so
# threads take turns. There is one lock for all modules, since a module that holds a lock cannot be copied or pickled.
_TURNS = threading.RLock()

Runs = list[list[tuple[int, int]]]  # starts and sizes of the kept parts of each dimension
Take = Callable[[str, torch.Tensor, Runs], torch.Tensor]


def take(tensor: torch.Tensor, runs: Runs) -> torch.Tensor:
    """Return the elements `runs[d]` of every dimension `d`; a view if each dimension has one run."""
    for d, dim_runs in enumerate(runs):
        if len(dim_runs) == 1:
            start, size = dim_runs[0]
            if size != tensor.shape[d]:
                tensor = tensor.narrow(d, start, size)
        else:
            tensor = torch.cat([tensor.narrow(d, start, size) for start, size in dim_runs], dim=d)
    return tensor


def tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return every parameter and buffer by name; a shared tensor has several names."""
    named = dict(module.named_parameters(remove_duplicate=False))
    return named | dict(module.named_buffers(remove_duplicate=False))


class Narrowing:
    """The width-dependent parts of a module: its sliced tensors, and the attributes that follow them.

    Args:
        module: the full-width network; it is changed only within `apply`.
        layouts: the space's layouts by tensor name.
        numbers: layouts of int attributes, as in `WidthSpace.numbers`.
    """

    def __init__(
        self, module: nn.Module, layouts: Mapping[str, ParameterLayout], numbers: Mapping[str, Layout] | None = None
    ) -> None:
        self._slots: list[tuple[dict[str, Any], str, str, torch.Tensor]] = []
        self._width_attributes: list[tuple[nn.Module, dict[str, Any], Mapping[str, ParameterLayout]]] = []
        self._stored = _stored_numbers(module, numbers or {})
        self.layouts = layouts
        for prefix, part in module.named_modules(remove_duplicate=False):
            own: dict[str, ParameterLayout] = {}
            for table in (part._parameters, part._buffers):
                for key, tensor in table.items():
                    name = f"{prefix}.{key}" if prefix else key
                    if tensor is not None and name in layouts:
                        own[key] = layouts[name]
                        self._slots.append((table, key, name, tensor))
            computed = None if "weight" in own else _computed_weight(prefix, own, layouts)
            if computed is not None:
                own["weight"] = computed
            if own:
                self._width_attributes.append((part, _width_attributes(part), own))

    @contextmanager
    def apply(self, widths: Sequence[int], side: Side, slicing: Take | None = None) -> Iterator[None]:
        """Run the module at `widths` within the block; `slicing(name, tensor, runs)` may replace `take`.

        Other threads that narrow any module wait until the block ends.
        """
        views: dict[int, torch.Tensor] = {}
        with _TURNS, _without_checkpoints():
            try:
                for table, key, name, tensor in self._slots:
                    # A tensor under several names is sliced once, so its users still share it.
                    if id(tensor) not in views:
                        runs = [spans(layout, widths, side) for layout in self.layouts[name]]
                        views[id(tensor)] = slicing(name, tensor, runs) if slicing else take(tensor, runs)
                    table[key] = views[id(tensor)]
                for part, full, own in self._width_attributes:
                    part.__dict__.update(_fit_numbers(part, full, own, widths))
                for part, name, value, layouts in self._stored:
                    part.__dict__[name] = _values_at(value, layouts, widths)
                yield
            finally:  # restore the module whatever its forward raised
                for table, key, _, tensor in self._slots:
                    table[key] = tensor
                for part, full, _ in self._width_attributes:
                    part.__dict__.update(full)
                for part, name, value, _ in self._stored:
                    part.__dict__[name] = value

    def fix_numbers(self, widths: Sequence[int]) -> None:
        """Set the attributes permanently, on a module whose tensors were replaced permanently."""
        for part, full, own in self._width_attributes:
            part.__dict__.update(_fit_numbers(part, full, own, widths))
        for part, name, value, layouts in self._stored:
            part.__dict__[name] = _values_at(value, layouts, widths)


_Stored = tuple[nn.Module, str, Any, dict[str, Layout]]  # a module, its attribute, the full value, its layouts


def _stored_numbers(module: nn.Module, numbers: Mapping[str, Layout]) -> list[_Stored]:
    """Return the attributes that follow the widths; for a tuple, layouts of some of its ints by index."""
    found: dict[tuple[str, str], dict[str, Layout]] = {}
    for key, layout in numbers.items():
        prefix, _, attribute = key.rpartition(":")
        name, _, index = attribute.partition(".")
        found.setdefault((prefix, name), {})[index] = layout
    parts = {key: module.get_submodule(key[0]) for key in found}
    return [(part, key[1], part.__dict__[key[1]], found[key]) for key, part in parts.items() if key[1] in part.__dict__]


def _values_at(value: Any, layouts: Mapping[str, Layout], widths: Sequence[int]) -> Any:
    """Return an int, or a tuple or list of ints, at other widths."""
    if "" in layouts:
        return length(layouts[""], widths)
    items = (length(layouts[str(i)], widths) if str(i) in layouts else item for i, item in enumerate(value))
    return type(value)(items)


@contextmanager
def _without_checkpoints() -> Iterator[None]:
    """Disable the model's activation checkpointing within the block.

    Checkpoints would run the forward method again in the backward pass, when the module is at full width again. torch
    has no switch for them, so the two functions that all of them use are replaced.
    """

    def keep(*_: Any, **__: Any) -> Iterator[None]:
        yield

    def run(function: Callable[..., Any], _: bool, *args: Any) -> Any:
        return function(*args)

    plain = {
        "_checkpoint_without_reentrant_generator": keep,
        "CheckpointFunction": SimpleNamespace(apply=run),  # the older, reentrant kind
    }
    before = {name: getattr(checkpoint, name) for name in plain}
    vars(checkpoint).update(plain)
    try:
        yield
    finally:
        vars(checkpoint).update(before)


_NUMBERS = (
    "in_channels", "out_channels", "groups", "in_features", "out_features", "num_features", "num_channels",
    "num_groups", "normalized_shape", "num_parameters", "embedding_dim", "input_size", "_flat_weights",
)  # fmt: skip


def _computed_weight(
    prefix: str, own: Mapping[str, ParameterLayout], layouts: Mapping[str, ParameterLayout]
) -> ParameterLayout | None:
    """Return the layout of a weight that is computed at every call: that of the parameter of the same shape behind it.

    Weight norm and spectral norm, as parametrizations or hooks, put a tensor in the weight's place.
    """
    inner = f"{prefix}.parametrizations.weight" if prefix else "parametrizations.weight"
    places = (f"{inner}.original1", f"{inner}.original")
    return own.get("weight_orig") or next((layouts[name] for name in places if name in layouts), None)


def _width_attributes(part: nn.Module) -> dict[str, Any]:
    known = (
        _ConvNd, nn.Linear, nn.Embedding, _NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.PReLU,
        nn.RNNBase, nn.RNNCellBase,
    )  # fmt: skip
    if not isinstance(part, known):
        return {}
    return {key: part.__dict__[key] for key in _NUMBERS if key in part.__dict__}


def _fit_numbers(
    part: nn.Module, full: Mapping[str, Any], own: Mapping[str, ParameterLayout], widths: Sequence[int]
) -> dict[str, Any]:
    """Return the layer's attributes at `widths`, from the sizes of its sliced tensors."""
    if not full:
        return {}
    sizes = tuple(length(layout, widths) for layout in next(iter(own.values())))
    if isinstance(part, (_ConvNd, nn.Linear)):
        if "weight" not in own:  # the layer is unchanged, whatever happens to the bias
            return {}
        shape = tuple(length(layout, widths) for layout in own["weight"])
        if isinstance(part, nn.Linear):
            return {"out_features": shape[0], "in_features": shape[1]}
        return _fitted_conv(part, full, shape, within=_has_equal_groups(own["weight"][0], full["groups"]))
    if isinstance(part, nn.RNNBase):  # it also keeps a list of its weights
        weights = [getattr(part, name, None) for name in part._flat_weights_names]
        return {"input_size": sizes[1], "_flat_weights": weights}
    if isinstance(part, nn.RNNCellBase):
        return {"input_size": sizes[1]}
    if isinstance(part, nn.Embedding):
        return {"embedding_dim": sizes[1]}
    if isinstance(part, nn.GroupNorm):
        groups = full["num_groups"]
        return {"num_channels": sizes[0], "num_groups": sizes[0] * groups // full["num_channels"] if groups > 1 else 1}
    if isinstance(part, (nn.LayerNorm, nn.RMSNorm)):
        return {"normalized_shape": sizes}
    return {"num_parameters" if isinstance(part, nn.PReLU) else "num_features": sizes[0]}


def _has_equal_groups(layout: Layout, groups: int) -> bool:
    """Return whether a dimension is narrowed within its groups, so that each group has the same segments."""
    each, over = divmod(len(layout), groups)
    return groups > 1 and each > 0 and not over and layout == layout[:each] * groups


def _fitted_conv(
    part: _ConvNd, full: Mapping[str, Any], shape: tuple[int, ...], *, within: bool = False
) -> dict[str, int]:
    transposed = isinstance(part, _ConvTransposeNd)
    outer = full["in_channels"] if transposed else full["out_channels"]  # counted by dimension 0 of the weight
    groups = full["groups"]
    if groups > 1 and not within:  # whole groups are kept
        groups = shape[0] * groups // outer
    channels = (shape[0], shape[1] * groups)
    names = ("in_channels", "out_channels") if transposed else ("out_channels", "in_channels")
    return {"groups": groups, **dict(zip(names, channels, strict=True))}
