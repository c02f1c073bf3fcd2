"""Inputs and outputs of a run's networks, as stored with their weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, FiniteFloat, ValidationError
from torch import nn

from bcnet.data import Normaliser
from bcnet.errors import RunError
from bcnet.pytree import Pytree, by_name, from_named, map_tensors, rebuild, tensors, upper_bound
from bcnet.train.recipe import Count, describe


class _Statistics(BaseModel):
    mean: tuple[FiniteFloat, ...]
    std: tuple[FiniteFloat, ...]


class _StoredInput(BaseModel):
    shape: tuple[Count, ...]
    dtype: Literal["float32", "float64", "float16", "bfloat16", "int32", "int64", "bool"] = "float32"
    high: Count = 1


class _Stored(BaseModel):
    shape: tuple[Count, ...] | None = None
    inputs: dict[str, _StoredInput] | None = None
    class_names: tuple[str, ...]
    normaliser: _Statistics | None
    outputs: Count | None = None
    preparation: str = ""


@dataclass(frozen=True)
class Input:
    """One input of a network, `(batch, *shape)`; integers are below `high`."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    high: int = 1

    def draw_random(self, batch: int, generator: torch.Generator, *, normal: bool = False) -> torch.Tensor:
        """Return random inputs: floats in [0, 1), which are valid normalised images too, or normally distributed."""
        kind: torch.dtype = getattr(torch, self.dtype)
        if not kind.is_floating_point:
            return torch.randint(max(self.high, 1), (batch, *self.shape), generator=generator).to(kind)
        draw = torch.randn if normal else torch.rand
        return draw(batch, *self.shape, generator=generator).to(kind)

    @property
    def text(self) -> str:
        """Describe the input in Markdown: "floats `(batch, 3, 32, 32)`"."""
        kind = "floats" if "float" in self.dtype else f"{self.dtype} below {self.high}"
        return f"{kind} `({', '.join(map(str, ('batch', *self.shape)))})`"


Inputs = Input | tuple[Input, ...] | dict[str, Input]


def describe_inputs(inputs: Pytree) -> Inputs:
    """Return the description that all inputs of a data set share."""

    def describe(tensor: torch.Tensor) -> Input:
        return Input(tuple(tensor.shape[1:]), str(tensor.dtype).removeprefix("torch."), upper_bound(tensor))

    found: Inputs = rebuild(inputs, [describe(tensor) for tensor in tensors(inputs)])
    return found


@dataclass(frozen=True)
class InputFacts:
    """Inputs and outputs of a run's networks: floats `(batch, *shape)`, one logit for each of `class_names`.

    `inputs` is one `Input`, a tuple (positional arguments of `forward`) or a dict (keyword arguments). `normaliser` has
    the mean and standard deviation of every channel, for images in [0, 1]. `outputs` is the number of values or
    channels of a network made by name, if the task sets it instead of the classes (`Task.outputs`). `preparation`
    describes how image files were resized by the library.
    """

    inputs: Inputs
    class_names: tuple[str, ...]
    normaliser: Normaliser | None
    outputs: int | None = None
    preparation: str = ""

    @property
    def by_name(self) -> dict[str, Input]:
        """Return the inputs by name, as `bcnet.pytree.by_name` does."""
        return by_name(self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first input without the batch."""
        return next(iter(self.by_name.values())).shape

    @property
    def channels_and_size(self) -> tuple[int, int]:
        """Return channels and size for a network made by name; 1 if the first input lacks the dimension."""
        channels, size = (*self.shape, 1, 1)[:2]
        return channels, size

    @property
    def num_classes(self) -> int | None:
        """Number of classes for a network made by name; None for its default."""
        return self.outputs or len(self.class_names) or None

    def draw_random(self, batch: int, generator: torch.Generator, *, normal: bool = False) -> Pytree:
        """Return random inputs on the CPU."""
        parts = {name: one.draw_random(batch, generator, normal=normal) for name, one in self.by_name.items()}
        tree: Pytree = from_named(parts)
        return tree

    def zeros(self, batch: int) -> Pytree:
        """Return inputs of zeros on the CPU."""
        return map_tensors(torch.zeros_like, self.draw_random(batch, torch.Generator()))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for `space.json`."""
        normaliser = self.normaliser
        norm = None if normaliser is None else {"mean": normaliser.mean, "std": normaliser.std}
        outputs = {} if self.outputs is None else {"outputs": self.outputs}
        taken: dict[str, Any] = {"inputs": {name: dataclasses.asdict(one) for name, one in self.by_name.items()}}
        if isinstance(self.inputs, Input) and self.inputs.dtype == "float32":
            taken = {"shape": list(self.inputs.shape)}
        preparation = {"preparation": self.preparation} if self.preparation else {}
        return {**taken, "class_names": list(self.class_names), "normaliser": norm, **outputs, **preparation}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any] | None, path: Path) -> InputFacts:
        """Return the facts that `to_dict` wrote.

        Raises:
            RunError: they are missing, since the run at `path` has an earlier version, or invalid.
        """
        if document is None:
            raise RunError(f"run {path} was made by an earlier version, which kept no input shape: search again")
        try:
            stored = _Stored.model_validate(document)
        except ValidationError as error:
            raise RunError(f"{path} does not say what its networks take: {describe(error)}: search again") from None
        inputs = {} if stored.inputs is None else {n: Input(**i.model_dump()) for n, i in stored.inputs.items()}
        inputs = inputs if stored.shape is None else {"": Input(stored.shape)}
        if not inputs:
            raise RunError(f"{path} does not say what its networks take: search again")
        norm = stored.normaliser
        normaliser = None if norm is None else Normaliser(norm.mean, norm.std)
        return cls(from_named(inputs), stored.class_names, normaliser, stored.outputs, stored.preparation)

    def normalise(self, network: nn.Module, *, of_bytes: bool = False) -> nn.Module:
        """Return the network preceded by its normalisation, in eval mode, for images in [0, 1] or bytes.

        Raises:
            RunError: the run was given finished batches, so their normalisation is unknown.
        """
        if self.normaliser is None:
            raise RunError(
                "this network was trained on batches that a loader had prepared, and their normalisation is not known "
                "here: leave with_normalisation (--with-normalisation) out and prepare images as the loader does"
            )
        return nn.Sequential(Normalise(self.normaliser, of_bytes=of_bytes), network).eval()


class Normalise(nn.Module):
    """`(x - mean) / std` for each channel of images `(batch, C, H, W)` in [0, 1], or of bytes over 255."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, normaliser: Normaliser, *, of_bytes: bool = False) -> None:
        super().__init__()
        self.of_bytes = of_bytes
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(getattr(normaliser, name)).view(-1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return images of zero mean and unit variance, of the same shape."""
        images = x.to(self.mean.dtype) / 255 if self.of_bytes else x
        return (images - self.mean) / self.std
