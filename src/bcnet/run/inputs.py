"""Inputs and outputs of a run's networks, as they are kept beside their weights."""

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
from bcnet.nests import Nest, by_name, from_named, like, map_tensors, tensors, upper_bound
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
        """Random ones: floats in [0, 1), which normalised images take as well, or of a normal distribution."""
        kind: torch.dtype = getattr(torch, self.dtype)
        if not kind.is_floating_point:
            return torch.randint(max(self.high, 1), (batch, *self.shape), generator=generator).to(kind)
        draw = torch.randn if normal else torch.rand
        return draw(batch, *self.shape, generator=generator).to(kind)

    @property
    def text(self) -> str:
        """For people, in Markdown: "floats `(batch, 3, 32, 32)`"."""
        kind = "floats" if "float" in self.dtype else f"{self.dtype} below {self.high}"
        return f"{kind} `({', '.join(map(str, ('batch', *self.shape)))})`"


Inputs = Input | tuple[Input, ...] | dict[str, Input]


def describe_inputs(inputs: Nest) -> Inputs:
    """Return what all inputs of a data set have in common."""

    def one(tensor: torch.Tensor) -> Input:
        return Input(tuple(tensor.shape[1:]), str(tensor.dtype).removeprefix("torch."), upper_bound(tensor))

    found: Inputs = like(inputs, [one(tensor) for tensor in tensors(inputs)])
    return found


@dataclass(frozen=True)
class InputFacts:
    """Inputs and outputs of a run's networks: floats `(batch, *shape)`, one logit for each of `class_names`.

    `inputs` is one `Input`, or several: a tuple are the arguments of a network's `forward`, a dict its keyword
    arguments. `normaliser` has the mean and standard deviation of every channel, for images in [0, 1]. `outputs` is how
    many values or channels a network made by name gives, where the task says so and not the classes (`Task.outputs`).
    `preparation` says how an image file was resized, where the library has done it.
    """

    inputs: Inputs
    class_names: tuple[str, ...]
    normaliser: Normaliser | None
    outputs: int | None = None
    preparation: str = ""

    @property
    def by_name(self) -> dict[str, Input]:
        """The inputs by name, as `bcnet.nests.by_name` has them."""
        return by_name(self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return that of the first input, without the batch."""
        return next(iter(self.by_name.values())).shape

    @property
    def channels_and_size(self) -> tuple[int, int]:
        """Return what a network made by name is given as such; 1 where the first input has no such dimension."""
        channels, size = (*self.shape, 1, 1)[:2]
        return channels, size

    @property
    def num_classes(self) -> int | None:
        """Return what a network made by name is given as such; None where it has its usual number."""
        return self.outputs or len(self.class_names) or None

    def draw_random(self, batch: int, generator: torch.Generator, *, normal: bool = False) -> Nest:
        """Random inputs, on the CPU."""
        parts = {name: one.draw_random(batch, generator, normal=normal) for name, one in self.by_name.items()}
        nest: Nest = from_named(parts)
        return nest

    def zeros(self, batch: int) -> Nest:
        """Inputs of zeros, on the CPU."""
        return map_tensors(torch.zeros_like, self.draw_random(batch, torch.Generator()))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for `space.json`."""
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
        """Return what `to_dict` gave.

        Raises:
            RunError: there is nothing, since the run at `path` was made by an earlier version, or nothing of that kind.
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
        """The network behind its normalisation, in eval mode: it takes images in [0, 1], or bytes.

        Raises:
            RunError: the run was given batches that were ready made, so that their normalisation is not known.
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
        """Images of zero mean and unit variance, of the same shape."""
        images = x.to(self.mean.dtype) / 255 if self.of_bytes else x
        return (images - self.mean) / self.std
