"""Imitation: a narrow network learns the original's outputs, without labels.

Notation: `y` is the original's output, `z` the narrow network's, `T` the temperature; `mean` and `var` are over a
batch. The loss of an input depends on the kind of the output:

    logits          T^2 KL(softmax(y / T) || softmax(z / T))          (Hinton et al., 2015)
    probabilities   KL(y || z)
    values          mean((z - y)^2) / var(y)
    embedding       1 - cos(y, z)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from bcnet.data.loaders import Loaders
from bcnet.data.sounds import Framing
from bcnet.data.unlabelled import PIXELS, load_inputs
from bcnet.errors import ModelError, RecipeError
from bcnet.measurement import Metric
from bcnet.tasks.base import Task, pooled_ratio, shape_of

KINDS = ("logits", "probabilities", "values", "embedding")
LABELS = "labels"
"""Key of the labels in the targets of test inputs that have them."""
_SHAPE = re.compile(r"(1x)*[1-9]\d{0,8}")
_TINY = 1e-12
_NEAR = 1e-3  # tolerance around 1 for sums of probabilities and lengths of embeddings, in single precision


@dataclass(frozen=True)
class Imitation(Task):
    """The targets are the original's outputs, for any inputs; the original is never trained.

    `outputs_are` is the kind of each output tensor, joined by "+" ("logits", "values+embedding"). If empty, it is
    inferred from the original's outputs for two inputs (`of`), as is `batch_dims`, the batch dimension of each output
    ("0+1": the second one is `(time, batch, classes)`). `temperature` softens logits. `pixels` is the conversion of a
    folder's images: "imagenet" (minus its mean, divided by its standard deviation), "0..1", "-1..1" or "0..255".

    A folder of WAV files is read if `samples` is the shape of a frame: "1024" for inputs `(batch, 1024)`, "1x1024" for
    `(batch, 1, 1024)`. Sounds are resampled to `rate` samples per second (0: unchanged). With `standardise`, each
    frame's mean is subtracted, and it is divided by its standard deviation.

    The metric is agreement in percent: for logits and probabilities, the share of inputs with the original's largest
    entry; for values, `R^2` (100 if all are equal, 0 if their mean is as good); for embeddings, the cosine. With
    several outputs it is the mean. If test inputs have class numbers and the first output has an entry per class, top-1
    accuracy is measured too.

    Raises:
        RecipeError: an unknown kind or pixel range, a temperature that is not positive, or an invalid shape or rate.
    """

    name: ClassVar[str] = "imitation"
    imitates: ClassVar[bool] = True
    headline: ClassVar[Metric] = Metric(
        "agreement", "agreement with the original", "%", meaning="100 where a network gives what the original gives"
    )

    outputs_are: str = ""
    temperature: float = 2.0
    pixels: str = "imagenet"
    samples: str = ""
    rate: int = 0
    standardise: bool = False
    batch_dims: str = ""

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown:
            raise RecipeError(f"an output must be one of {', '.join(KINDS)}; got {unknown[0]!r}: join several by '+'")
        if self.pixels not in PIXELS:
            raise RecipeError(f"pixels must be one of {', '.join(PIXELS)}; got {self.pixels!r}")
        if not 0 < self.temperature < float("inf"):
            raise RecipeError(f"the temperature of an imitation must be above 0; got {self.temperature}")
        if self.samples and _SHAPE.fullmatch(self.samples) is None:
            raise RecipeError(
                f'samples must be the shape of a frame of sound, "1024" or "1x1024"; got {self.samples!r}'
            )
        if self.rate < 0:
            raise RecipeError(f"the rate of sounds must be in samples a second, 16000 for instance; got {self.rate}")
        if (self.rate or self.standardise) and not self.samples:
            raise RecipeError(
                "rate and standardise are for folders of sounds; got no samples: say how long a frame is "
                "(imitation:samples=1024)"
            )

    def read(self, path: str, image_size: int | None) -> Loaders:
        """Return loaders of a file's inputs, or of a folder's images or sounds (`bcnet.data.unlabelled.load_inputs`).

        Raises:
            DataError: no such file or folder, other contents, or too few inputs.
        """
        shape = tuple(map(int, self.samples.split("x"))) if self.samples else ()
        framing = Framing(self.rate, shape, self.standardise) if shape else None
        return load_inputs(path, image_size, self.pixels, framing)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each output tensor; empty before they are inferred."""
        return tuple(kind.strip() for kind in self.outputs_are.split("+")) if self.outputs_are else ()

    def of(self, network: nn.Module, first: Any, again: Any, single: Any) -> Self:
        """Return the task with the kinds of `network`'s outputs and their batch dimensions.

        `first` and `again` are outputs for the same batch, `single` for its first input alone.

        Raises:
            ModelError: no float tensor, another number of outputs than kinds, values that are not finite or that
                differ, or an output without a row for each input.
        """
        leaves = output_tensors(first)
        if not leaves:
            raise ModelError(
                f"an imitation needs a network that returns float tensors; {type(network).__name__} returned "
                f"{shape_of(first)}: wrap it in a module that returns what is to be imitated"
            )
        for a, b in zip(leaves, output_tensors(again), strict=True):
            if not bool(a.isfinite().all()):
                raise ModelError(
                    f"an imitation needs finite outputs; {type(network).__name__} gave NaN or infinity for a batch of "
                    "the data: check its weights, and that the inputs are prepared as in its training"
                )
            if not torch.equal(a, b):
                raise ModelError(
                    f"an imitation needs one answer to each input; {type(network).__name__} gave two in eval mode, up "
                    f"to {float((a - b).abs().max()):.3g} apart: take out what draws random numbers there"
                )
        if self.kinds and len(self.kinds) != len(leaves):
            raise ModelError(
                f"outputs_are must have a kind for each of the network's {len(leaves)} output tensors; got "
                f"{len(self.kinds)}, {self.outputs_are!r}: leave it out, or give {len(leaves)}"
            )
        # The batch dimension of an output is the one that differs between two inputs and one.
        dims = [_batch_dim(two, one) for two, one in zip(leaves, output_tensors(single), strict=True)]
        if None in dims and not self.batch_dims:
            number = dims.index(None)
            raise ModelError(
                f"an imitation needs outputs with a row for each input; {type(network).__name__} returns "
                f"{tuple(leaves[number].shape)} as output {number} (from 0) for two inputs: wrap it in a module that "
                "leaves it out"
            )
        known = replace(self, batch_dims=self.batch_dims or "+".join(map(str, dims)))
        return replace(known, outputs_are=self.outputs_are or "+".join(map(kind_of, known.answers(first))))

    def answers(self, outputs: Any) -> list[Tensor]:
        """Return the output tensors, `(batch, ...)` each; additional outputs of training mode are dropped."""
        leaves = output_tensors(outputs)
        dims = list(map(int, self.batch_dims.split("+"))) if self.batch_dims else []
        return [leaf.movedim(dim, 0) for leaf, dim in zip(leaves, dims, strict=False)] + leaves[len(dims) :]

    def check_targets(self, targets: Any, where: str) -> Any:
        """Return labels unchanged; they are not used for training."""
        return targets

    def loss(self, outputs: Any, targets: Mapping[str, Tensor]) -> Tensor:
        """Return the mean over batch and outputs."""
        return -self.score(outputs, targets).mean()

    def score(self, outputs: Any, targets: Mapping[str, Tensor]) -> Tensor:
        """Return the negative loss of each input."""
        losses = [_LOSSES[kind](z, y, self.temperature) for kind, z, y in self._pairs(outputs, targets)]
        return -torch.stack(losses).mean(dim=0)

    def figures(self, outputs: Any, targets: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return agreement as numerators and denominators `(batch, outputs, 2)`, and top-1 correctness with labels.

        See `summarize`.
        """
        pairs = list(self._pairs(outputs, targets))
        found = {"agreement": torch.stack([_agreement(kind, z, y) for kind, z, y in pairs], dim=1)}
        labels = targets.get(LABELS)
        if labels is not None:
            found["top1"] = 100.0 * (pairs[0][1].argmax(dim=1) == labels)
        return found

    def summarize(self, figures: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Return ratios of sums in percent with the jackknife's error, and means of the other figures."""
        rest = {key: values for key, values in figures.items() if key != "agreement"}
        means, errors = super().summarize(rest) if rest else ({}, {})
        value, error = pooled_ratio(figures["agreement"])
        return {"agreement": 100 * value, **means}, {"agreement": 100 * error, **errors}

    def _pairs(self, outputs: Any, targets: Mapping[str, Tensor]) -> list[tuple[str, Tensor, Tensor]]:
        """Return kind, output and target of each output, in float32.

        Raises:
            ModelError: the network's outputs have other shapes than the original's.
        """
        wanted = [value for name, value in targets.items() if name != LABELS]
        leaves = self.answers(outputs)[: len(wanted)]
        if [z.shape for z in leaves] != [y.shape for y in wanted]:
            raise ModelError(
                f"a narrow network must return tensors of the original's shapes, {[tuple(y.shape) for y in wanted]}; "
                f"got {[tuple(z.shape) for z in leaves]}: its outputs in training mode may differ from those in eval "
                "mode"
            )
        return [(kind, z.float(), y.float()) for kind, z, y in zip(self.kinds, leaves, wanted, strict=True)]


def output_tensors(outputs: Any) -> list[Tensor]:
    """Return the float tensors of arbitrarily nested outputs, in order."""
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def _batch_dim(of_two: Tensor, of_one: Tensor) -> int | None:
    """Return the dimension whose size is the number of inputs; None if there is none."""
    sizes = zip(of_two.shape, of_one.shape, strict=False)
    return next((d for d, (two, one) in enumerate(sizes) if (two, one) == (2, 1)), None)


def kind_of(output: Tensor) -> str:
    """Infer the kind of an output tensor from its shape and values.

    Rows `(batch, n)` are probabilities if non-negative with sum 1, embeddings if of length 1, values if all lie in [0,
    1], and logits otherwise. Other shapes are values.
    """
    if output.ndim != 2 or output.shape[1] < 2:
        return "values"
    rows = output.double()
    if bool((rows >= 0).all()) and bool(((rows.sum(dim=1) - 1).abs() < _NEAR).all()):
        return "probabilities"
    if bool(((rows.norm(dim=1) - 1).abs() < _NEAR).all()):
        return "embedding"
    return "values" if bool(((rows >= 0) & (rows <= 1)).all()) else "logits"


def _rows(values: Tensor) -> Tensor:
    """`(batch, ...)` -> `(batch, n)`."""
    return values.reshape(len(values), -1)


def _loss_of_logits(z: Tensor, y: Tensor, temperature: float) -> Tensor:
    wanted = torch.log_softmax(y / temperature, dim=1)
    off = wanted.exp() * (wanted - torch.log_softmax(z / temperature, dim=1))
    return temperature**2 * _rows(off.sum(dim=1)).mean(dim=1)


def _loss_of_probabilities(z: Tensor, y: Tensor, temperature: float) -> Tensor:
    off = y * (y.clamp(min=_TINY).log() - z.clamp(min=_TINY).log())
    return _rows(off.sum(dim=1)).mean(dim=1)


def _loss_of_values(z: Tensor, y: Tensor, temperature: float) -> Tensor:
    return _rows((z - y).square()).mean(dim=1) / _variance(y).mean().clamp(min=_TINY)


def _loss_of_embedding(z: Tensor, y: Tensor, temperature: float) -> Tensor:
    return 1 - torch.cosine_similarity(_rows(z), _rows(y))


_LOSSES = {
    "logits": _loss_of_logits,
    "probabilities": _loss_of_probabilities,
    "values": _loss_of_values,
    "embedding": _loss_of_embedding,
}


def _variance(y: Tensor) -> Tensor:
    """Return the mean squared deviation of each input from the batch mean, `(batch,)`; from 0 for a batch of one."""
    mean = y.mean(dim=0, keepdim=True) if len(y) > 1 else 0.0
    return _rows((y - mean).square()).mean(dim=1)


def _agreement(kind: str, z: Tensor, y: Tensor) -> Tensor:
    """Return numerator and denominator of each input, `(batch, 2)`."""
    if kind == "values":
        variance = _variance(y)
        return torch.stack([variance - _rows((z - y).square()).mean(dim=1), variance], dim=1)
    if kind == "embedding":
        alike: Tensor = torch.cosine_similarity(_rows(z), _rows(y))
    else:
        alike = _rows((z.argmax(dim=1) == y.argmax(dim=1)).float()).mean(dim=1)
    return torch.stack([alike, torch.ones_like(alike)], dim=1)


def names_of(leaves: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the targets made from a batch of the original's outputs, by name."""
    return {f"output {number}": leaf for number, leaf in enumerate(leaves)}
