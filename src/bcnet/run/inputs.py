"""What a run's networks take and give, as it is kept beside their weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, Field, FiniteFloat, ValidationError
from torch import nn

from bcnet.data import Normaliser
from bcnet.errors import RunError
from bcnet.train.recipe import Count, describe


class _Statistics(BaseModel):
    mean: tuple[FiniteFloat, ...]
    std: tuple[FiniteFloat, ...]


class _Stored(BaseModel):
    shape: Annotated[tuple[Count, ...], Field(min_length=2)]
    class_names: tuple[str, ...]
    normaliser: _Statistics | None
    outputs: Count | None = None


@dataclass(frozen=True)
class InputFacts:
    """What a run's networks take and give: floats `(batch, *shape)`, one logit for each of `class_names`.

    `normaliser` has the mean and standard deviation of every channel, for images in [0, 1]. `outputs` is how many
    values or channels a network made by name gives, where the task says so and not the classes (`Task.outputs`).
    """

    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    normaliser: Normaliser | None
    outputs: int | None = None

    @property
    def num_classes(self) -> int | None:
        """What a network made by name is given as such; None where it has its usual number."""
        return self.outputs or len(self.class_names) or None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for `space.json`."""
        norm = None if self.normaliser is None else dataclasses.asdict(self.normaliser)
        outputs = {} if self.outputs is None else {"outputs": self.outputs}
        return {"shape": list(self.shape), "class_names": list(self.class_names), "normaliser": norm, **outputs}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any] | None, path: Path) -> InputFacts:
        """What `to_dict` gave.

        Raises:
            RunError: there is nothing, since the run at `path` was made by an earlier version, or nothing of that kind.
        """
        if document is None:
            raise RunError(f"run {path} was made by an earlier version, which kept no input shape: search again")
        try:
            stored = _Stored.model_validate(document)
        except ValidationError as error:
            raise RunError(f"{path} does not say what its networks take: {describe(error)}: search again") from None
        norm = stored.normaliser
        normaliser = None if norm is None else Normaliser(norm.mean, norm.std)
        return cls(stored.shape, stored.class_names, normaliser, stored.outputs)

    def normalised(self, network: nn.Module) -> nn.Module:
        """The network behind its normalisation, in eval mode: it takes images in [0, 1].

        Raises:
            RunError: the run was given batches that were ready made, so that their normalisation is not known.
        """
        if self.normaliser is None:
            raise RunError(
                "this network was trained on batches that a loader had prepared, and their normalisation is not known "
                "here: leave with_normalisation (--with-normalisation) out and prepare images as the loader does"
            )
        return nn.Sequential(Normalise(self.normaliser), network).eval()


class Normalise(nn.Module):
    """`(x - mean) / std` for each channel of images `(batch, C, H, W)` in [0, 1]."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, normaliser: Normaliser) -> None:
        super().__init__()
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(getattr(normaliser, name)).view(-1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images of zero mean and unit variance, of the same shape."""
        return (x - self.mean) / self.std
