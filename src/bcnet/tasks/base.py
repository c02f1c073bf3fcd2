"""Tasks: the loss of a network, its score, and the figures measured on the test images.

A task is told what the network gave for a batch and what was wanted (its targets: labels, masks, images, numbers), and
nothing else: supernet, search and final training are the same for all. One of your own is a subclass, given as
`bcnet.search(..., task=Mine())`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from bcnet.data.transfer import move
from bcnet.errors import DataError, TrainingError
from bcnet.machine.precision import Precision, autocast, resolve_precision
from bcnet.measurement import Measurement, Metric
from bcnet.nests import by_name, call_network
from bcnet.nests import count as nest_size
from bcnet.tasks.shown import Shown


class Distilling(Protocol):
    """The part of a teacher's outputs in the loss."""

    @property
    def temperature(self) -> float:
        """The temperature of the softened outputs."""

    @property
    def weight(self) -> float:
        """The teacher's share of the loss, 0 to 1."""


class Task(ABC):
    """Loss, score and test metric of what a network is trained for. Settings are fields of a frozen dataclass.

    `name` is the word for it in files, `headline` the metric that people read first. `soft_labels` says whether label
    smoothing and distillation mean something to it: `training_loss` is then its own. `imitates` says that targets are
    the original's outputs: it has to be trained already, and stays as it is.

    Example: a number for each image,

        @dataclass(frozen=True)
        class Counting(bcnet.Task):
            name = "counting"
            headline = bcnet.Metric("mae", "mean absolute error", higher=False)

            def loss(self, outputs, targets):
                return (outputs[:, 0] - targets).square().mean()

            def score(self, outputs, targets):
                return -(outputs[:, 0] - targets).abs()

            def figures(self, outputs, targets):
                return {"mae": (outputs[:, 0] - targets).abs()}
    """

    name: ClassVar[str]
    headline: ClassVar[Metric]
    soft_labels: ClassVar[bool] = False
    imitates: ClassVar[bool] = False

    @abstractmethod
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """Return what training minimises: a scalar, the mean over the batch."""

    @abstractmethod
    def score(self, outputs: Any, targets: Any) -> Tensor:
        """Return what ranks widths, higher being better: one value for each image, `(batch,)`."""

    @abstractmethod
    def figures(self, outputs: Any, targets: Any) -> Mapping[str, Tensor]:
        """Return the figures of test images, by key: one value for each image, `(batch,)`; `headline` is among them.

        What `summarize` is overridden for may have more for each, `(batch, ...)`.
        """

    def classes_of(self, targets: Any) -> Tensor | None:
        """Return the class number of each image, `(batch,)`; None where an image has none, or several."""
        return None

    @property
    def outputs(self) -> int | None:
        """Return the number of values or channels of the last layer, where not one for each class of the labels.

        A model by name is made with as many (`num_classes`).
        """
        return None

    def summarize(self, figures: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """The values of the figures of all test images, `(images, ...)`, and their standard errors: means, usually.

        Raises:
            TrainingError: not one value for each image.
        """
        rows = {key: one_for_each(values, len(values), f"the figure {key!r}") for key, values in figures.items()}
        count = max(map(len, rows.values()))
        means = {key: values.mean() for key, values in rows.items()}
        if count == 1:
            return means, {key: torch.zeros_like(values[0]) for key, values in rows.items()}
        return means, {key: values.std() / count**0.5 for key, values in rows.items()}

    def check_targets(self, targets: Any, where: str) -> Any:
        """The targets of some images, `(images, ...)`, as the other methods get them: a tensor, or a tuple or dict.

        `where` names their origin for messages.

        Raises:
            DataError: they are none of this task.
        """
        for name, tensor in by_name(targets).items():
            whole = tensor.isfinite().reshape(len(tensor), -1).all(dim=1)
            if not whole.all():
                raise DataError(
                    f"the targets{name} of {where} are finite; got shape {tuple(tensor.shape)}, not finite in number "
                    f"{int((~whole).nonzero()[0])} of the batch: look at that item of the data set"
                )
        return targets

    def with_labels(self, labels: Tensor | None, classes: int) -> Task:
        """Return the task as it is for data of these training labels `(images,)`, None where targets are others."""
        return self

    def check(self, outputs: Any, classes: int) -> None:  # noqa: B027 - most take what comes
        """Raise ModelError where a network's outputs for two images cannot be of this task.

        `classes` is the number of different labels of the data, 0 where targets are no labels.
        """

    def show(
        self, pictures: Tensor | None, targets: Any, outputs: Any = None, *, names: Sequence[str] = ()
    ) -> Shown | None:
        """Return a report's view of some test images: of what was wanted, or, where given, of a network's `outputs`.

        `pictures` are the inputs as uint8 `(images, 3, H, W)`, None where they are no pictures; `names` those of the
        classes, where the data have any. None, of most tasks of one's own, is nothing.
        """
        return None

    def main_output(self, outputs: Any) -> Any:
        """Return the part of what a network gives in training mode that it also gives in eval mode: usually all."""
        return outputs

    def training_loss(
        self,
        outputs: Any,
        targets: Any,
        *,
        label_smoothing: float = 0.0,
        taught: Any = None,
        distilling: Distilling | None = None,
    ) -> Tensor:
        """The loss with what a recipe adds to it: of most tasks nothing.

        Raises:
            TrainingError: label smoothing or distillation, which only some tasks know, or a loss that is no scalar.
        """
        if label_smoothing or distilling is not None:
            raise TrainingError(
                f"label smoothing and distillation are for classification; got the task {self.name!r}: leave them out "
                "of the recipe (--set label_smoothing=0)"
            )
        return scalar(self.loss(outputs, targets))

    @property
    def description(self) -> str:
        """Return what tells this task from others, in a run's files."""
        fields: dict[str, Any] = dataclasses.asdict(self) if dataclasses.is_dataclass(self) else {}
        return f"{self.name} {json.dumps(fields, sort_keys=True, default=repr)}" if fields else self.name

    @torch.inference_mode()
    def test(self, network: nn.Module, batches: Any, *, precision: Precision = "fp32") -> Measurement:
        """The figures of a network in eval mode, whose mode is given back as it was.

        Raises:
            TrainingError: no images, figures of another form, or none that is a number.
        """
        was_training = network.training
        network.eval()
        device = next(network.parameters()).device
        resolved = resolve_precision(precision, device)
        parts: dict[str, list[Tensor]] = {}
        classes: list[Tensor] = []
        for x, y in batches:
            with autocast(resolved, device):
                outputs = call_network(network, move(x, device))
            targets = move(y, device)
            for key, values in self.figures(outputs, targets).items():
                parts.setdefault(key, []).append(_for_each(values, nest_size(y), f"the figure {key!r}"))
            known = self.classes_of(targets)
            classes += [] if known is None else [known]
        network.train(was_training)
        if self.headline.key not in parts:
            raise TrainingError(
                f"the figures of the task {self.name!r} have its headline {self.headline.key!r}, for at least one test "
                f"image; got {', '.join(parts) or 'none'}"
            )
        counts = {key: sum(map(len, rows)) for key, rows in parts.items()}
        count = max(counts.values())
        for key, there in counts.items():
            if there != count:
                raise TrainingError(f"every figure is there for all {count} images; got {there} of {key!r}")
        means, errors = self.summarize({key: torch.cat(rows) for key, rows in parts.items()})
        # Asked for once, at the end: a GPU works ahead.
        asked = [torch.stack([part[key] for key in parts]).double() for part in (means, errors)]
        if classes:
            asked += [torch.cat(parts[self.headline.key]).double(), torch.cat(classes).double()]
        told = iter(torch.cat(asked).tolist())
        shown, spreads, *each = [list(islice(told, len(row))) for row in asked]
        broken = [key for key, value in zip(parts, shown, strict=True) if not math.isfinite(value)]
        if broken:
            raise TrainingError(f"figures are finite numbers; got others for {broken[0]!r}: the weights are broken")
        by_class = _by_class(*each) if each else {}
        figures, standard = (dict(zip(parts, numbers, strict=True)) for numbers in (shown, spreads))
        return Measurement(figures, standard, count, by_class)


def _by_class(values: Sequence[float], classes: Sequence[float]) -> dict[int, tuple[int, float]]:
    """Return how many values there are of each class, and their mean."""
    found: dict[int, list[float]] = {}
    for value, number in zip(values, classes, strict=True):
        found.setdefault(int(number), []).append(value)
    return {number: (len(own), sum(own) / len(own)) for number, own in sorted(found.items())}


def alone(targets: Any, where: str) -> Tensor:
    """Targets that are one tensor.

    Raises:
        DataError: they are several.
    """
    if not isinstance(targets, Tensor):
        raise DataError(
            f"the targets of {where} are one tensor for this task; got a {type(targets).__name__} of {len(targets)}: "
            "give the loader a collate_fn that leaves the others out, or write a task that takes them all"
        )
    return targets


def scalar(loss: object) -> Tensor:
    """A loss of somebody's own, if it is one number.

    Raises:
        TrainingError: it is none.
    """
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise TrainingError(f"a loss of your own gives a tensor of one number; got {got}: take the mean over the batch")
    return loss.reshape(())


def one_for_each(values: object, count: int, what: str) -> Tensor:
    """Values in float64, if there is one for each of `count` images.

    Raises:
        TrainingError: there are others.
    """
    if not isinstance(values, Tensor) or values.shape != (count,):
        raise TrainingError(f"{what} is a tensor of one value for each image, ({count},); got {shape_of(values)}")
    return values.detach().double()


def _for_each(values: object, count: int, what: str) -> Tensor:
    if not isinstance(values, Tensor) or values.ndim == 0 or len(values) != count:
        return one_for_each(values, count, what)
    return values.detach().double()


def named_logits(outputs: Any) -> Any:
    """The `logits` of a dict, or of an object that names them, as Hugging Face's networks give; else the outputs."""
    if isinstance(outputs, Mapping):
        return outputs.get("logits", outputs)
    return outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", outputs)


def shape_of(value: object) -> tuple[int, ...] | str:
    """For messages: the shape of a tensor, the type of what is none."""
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def pooled_ratio(counts: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over classes of sums over sums, and its standard error.

    `counts` `(images, classes, 2)` are numerators and denominators. Classes whose denominators are all 0 do not count.
    The error is the jackknife's: the value is computed once without each of the images (Efron and Stein, 1981).
    """
    totals = counts.sum(dim=0)  # (classes, 2)
    there = totals[:, 1] > 0
    value = (totals[there, 0] / totals[there, 1]).mean()
    without = (totals - counts)[:, there]  # (images, classes, 2)
    left = without[..., 1] > 0
    ratios = torch.where(left, without[..., 0] / without[..., 1].clamp(min=1e-12), 0.0)
    values = ratios.sum(dim=1) / left.sum(dim=1).clamp(min=1)  # (images,)
    count = len(counts)
    return value, ((count - 1) / count * (values - values.mean()).square().sum()).sqrt()
