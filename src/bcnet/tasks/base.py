"""Base class of tasks: loss, score of a candidate, and test metrics.

A task receives the network's outputs for a batch and the targets (labels, masks, images, numbers), and nothing else;
supernet, search and final training are the same for all tasks. To add one, pass an instance of a subclass:
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
from bcnet.machine.devices import Precision, autocast, resolve_precision
from bcnet.measurement import Measurement, Metric
from bcnet.pytree import by_name, call_model
from bcnet.pytree import count as batch_size_of
from bcnet.tasks.shown import Shown


class Distilling(Protocol):
    """Weight of a teacher's outputs in the loss."""

    @property
    def temperature(self) -> float:
        """Temperature of the softened outputs."""

    @property
    def weight(self) -> float:
        """Teacher's share of the loss, 0 to 1."""


class Task(ABC):
    """Loss, score and test metric of a training task. Settings are fields of a frozen dataclass.

    `name` identifies it in files; `headline` is the metric shown first. `soft_labels`: label smoothing and distillation
    are supported, and `training_loss` is overridden. `imitates`: targets are the outputs of the original, which must be
    trained already and is not changed.

    Example: counting objects,

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
        """Return the training loss, a scalar, averaged over the batch."""

    @abstractmethod
    def score(self, outputs: Any, targets: Any) -> Tensor:
        """Return the score of widths for each image, `(batch,)`; higher is better."""

    @abstractmethod
    def figures(self, outputs: Any, targets: Any) -> Mapping[str, Tensor]:
        """Return the figures of test images by key, one value per image, `(batch,)`, including that of `headline`.

        If `summarize` is overridden, values may have more dimensions, `(batch, ...)`.
        """

    def classes_of(self, targets: Any) -> Tensor | None:
        """Return the class number of each image, `(batch,)`; None if images have none, or several."""
        return None

    @property
    def outputs(self) -> int | None:
        """Return the number of outputs (values or channels) of the last layer, if it is not the number of classes.

        A model given by name is made with this number (`num_classes`).
        """
        return None

    def summarize(self, figures: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Return values and standard errors of the figures of all test images, `(images, ...)`; by default means.

        Raises:
            TrainingError: not one value per image.
        """
        rows = {key: one_for_each(values, len(values), f"the figure {key!r}") for key, values in figures.items()}
        count = max(map(len, rows.values()))
        means = {key: values.mean() for key, values in rows.items()}
        if count == 1:
            return means, {key: torch.zeros_like(values[0]) for key, values in rows.items()}
        return means, {key: values.std() / count**0.5 for key, values in rows.items()}

    def check_targets(self, targets: Any, where: str) -> Any:
        """Return validated targets of some images, `(images, ...)`, for the other methods: a tensor, tuple or dict.

        `where` names their origin in messages.

        Raises:
            DataError: invalid targets for this task.
        """
        for name, tensor in by_name(targets).items():
            whole = tensor.isfinite().reshape(len(tensor), -1).all(dim=1)
            if not whole.all():
                raise DataError(
                    f"the targets{name} of {where} must be finite; got shape {tuple(tensor.shape)}, not finite in "
                    f"number {int((~whole).nonzero()[0])} of the batch: look at that item of the data set"
                )
        return targets

    def with_labels(self, labels: Tensor | None, classes: int) -> Task:
        """Return the task for data with these training labels `(images,)`, or None for other targets."""
        return self

    def check(self, outputs: Any, classes: int) -> None:  # noqa: B027 - most accept any outputs
        """Raise ModelError if a network's outputs for two images do not fit this task.

        `classes` is the number of different labels of the data, 0 for other targets.
        """

    def show(
        self, pictures: Tensor | None, targets: Any, outputs: Any = None, *, names: Sequence[str] = ()
    ) -> Shown | None:
        """Return a report's view of some test images: of their targets or, if given, of a network's `outputs`.

        `pictures` are the inputs as uint8 `(images, 3, H, W)`, or None. `names` are the class names, if any. The
        default is None, no view.
        """
        return None

    def main_output(self, outputs: Any) -> Any:
        """Return the part of the training-mode outputs that the network also returns in eval mode: usually all."""
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
        """Return the loss with the recipe's additions, which most tasks do not support.

        Raises:
            TrainingError: unsupported label smoothing or distillation, or a loss that is not a scalar.
        """
        if label_smoothing or distilling is not None:
            raise TrainingError(
                f"label smoothing and distillation are for classification; got the task {self.name!r}: leave them out "
                "of the recipe (--set label_smoothing=0)"
            )
        return scalar(self.loss(outputs, targets))

    @property
    def description(self) -> str:
        """Return the text that identifies this task in the files of a run."""
        fields: dict[str, Any] = dataclasses.asdict(self) if dataclasses.is_dataclass(self) else {}
        return f"{self.name} {json.dumps(fields, sort_keys=True, default=repr)}" if fields else self.name

    @torch.inference_mode()
    def test(self, network: nn.Module, batches: Any, *, precision: Precision = "fp32") -> Measurement:
        """Return the figures of a network in eval mode; its mode is restored.

        Raises:
            TrainingError: no images, figures of another form, or no finite value.
        """
        was_training = network.training
        network.eval()
        device = next(network.parameters()).device
        resolved = resolve_precision(precision, device)
        parts: dict[str, list[Tensor]] = {}
        classes: list[Tensor] = []
        for x, y in batches:
            with autocast(resolved, device):
                outputs = call_model(network, move(x, device))
            targets = move(y, device)
            for key, values in self.figures(outputs, targets).items():
                parts.setdefault(key, []).append(_for_each(values, batch_size_of(y), f"the figure {key!r}"))
            known = self.classes_of(targets)
            classes += [] if known is None else [known]
        network.train(was_training)
        if self.headline.key not in parts:
            raise TrainingError(
                f"the figures of the task {self.name!r} must have its headline {self.headline.key!r}, for at least one "
                f"test image; got {', '.join(parts) or 'none'}"
            )
        counts = {key: sum(map(len, rows)) for key, rows in parts.items()}
        count = max(counts.values())
        for key, there in counts.items():
            if there != count:
                raise TrainingError(f"every figure must be there for all {count} images; got {there} of {key!r}")
        means, errors = self.summarize({key: torch.cat(rows) for key, rows in parts.items()})
        # Read once at the end, since a GPU works ahead.
        columns = [torch.stack([part[key] for key in parts]).double() for part in (means, errors)]
        if classes:
            columns += [torch.cat(parts[self.headline.key]).double(), torch.cat(classes).double()]
        values_read = iter(torch.cat(columns).tolist())
        shown, spreads, *each = [list(islice(values_read, len(row))) for row in columns]
        broken = [key for key, value in zip(parts, shown, strict=True) if not math.isfinite(value)]
        if broken:
            raise TrainingError(f"figures must be finite numbers; got others for {broken[0]!r}: the weights are broken")
        by_class = _by_class(*each) if each else {}
        figures, standard = (dict(zip(parts, numbers, strict=True)) for numbers in (shown, spreads))
        return Measurement(figures, standard, count, by_class)


def _by_class(values: Sequence[float], classes: Sequence[float]) -> dict[int, tuple[int, float]]:
    """Return the number of values of each class, and their mean."""
    found: dict[int, list[float]] = {}
    for value, number in zip(values, classes, strict=True):
        found.setdefault(int(number), []).append(value)
    return {number: (len(own), sum(own) / len(own)) for number, own in sorted(found.items())}


def single_tensor(targets: Any, where: str) -> Tensor:
    """Return targets that are a single tensor.

    Raises:
        DataError: they are several.
    """
    if not isinstance(targets, Tensor):
        raise DataError(
            f"the targets of {where} must be one tensor for this task; got a {type(targets).__name__} of "
            f"{len(targets)}: give the loader a collate_fn that leaves the others out, or write a task that takes them "
            "all"
        )
    return targets


def scalar(loss: object) -> Tensor:
    """Return a custom loss if it is a scalar.

    Raises:
        TrainingError: it is not.
    """
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise TrainingError(
            f"a loss of your own must give a tensor of one number; got {got}: take the mean over the batch"
        )
    return loss.reshape(())


def one_for_each(values: object, count: int, what: str) -> Tensor:
    """Return values in float64 if there is one for each of `count` images.

    Raises:
        TrainingError: another shape.
    """
    if not isinstance(values, Tensor) or values.shape != (count,):
        raise TrainingError(f"{what} must be a tensor of one value for each image, ({count},); got {shape_of(values)}")
    return values.detach().double()


def _for_each(values: object, count: int, what: str) -> Tensor:
    if not isinstance(values, Tensor) or values.ndim == 0 or len(values) != count:
        return one_for_each(values, count, what)
    return values.detach().double()


def named_logits(outputs: Any) -> Any:
    """Return the `logits` of a dict or object, as Hugging Face's networks return; otherwise the outputs themselves."""
    if isinstance(outputs, Mapping):
        return outputs.get("logits", outputs)
    return outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", outputs)


def shape_of(value: object) -> tuple[int, ...] | str:
    """Return the shape of a tensor, or the type of anything else, for messages."""
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def pooled_ratio(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean over classes of sums over sums, and its standard error.

    `counts` `(images, classes, 2)` are numerators and denominators. Classes with zero denominators are ignored. The
    error is the jackknife's: the value is recomputed without each image (Efron and Stein, 1981).
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
