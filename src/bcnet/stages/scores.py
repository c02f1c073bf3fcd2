"""Scorers of candidates: paths of a supernet, separately trained networks, or a custom function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from bcnet.data import Batch
from bcnet.machine.devices import Precision, autocast
from bcnet.pytree import Pytree, call_model
from bcnet.searchers import ImageScores, Metric, PerImage, SupernetEvaluator
from bcnet.searchers.search import Mapper, Score
from bcnet.space import Side, Widths
from bcnet.stages.base import Context
from bcnet.stages.supernet import method_of
from bcnet.supernet import Supernet
from bcnet.tasks import Classification
from bcnet.train import STRATEGIES


@dataclass(frozen=True)
class Scorer:
    """Scores candidates, and scores the best again on fresh images (None if a score is final).

    `longer` means that the second score follows a longer training than the first, so it alone decides. `mapper`
    computes several scores; None for the mapper of the run's processes.

    """

    score: Score
    again: ImageScores | None = None
    longer: bool = False
    mapper: Mapper | None = None


FloatArray = np.ndarray[tuple[int], np.dtype[np.float64]]
_PARTS = 8  # parts of the images of a score, to estimate its reliability


@dataclass(frozen=True)
class NetworkScores(ABC):
    """Scores widths on `batches`, each by a network trained for them (a `PartScore`)."""

    context: Context
    batches: Sequence[Batch]

    @property
    @abstractmethod
    def precision(self) -> Precision:
        """Return the precision of the networks."""

    @abstractmethod
    def network(self, widths: Widths) -> AbstractContextManager[nn.Module]:
        """Yield the trained network of these widths in eval mode."""

    @property
    def metric(self) -> Metric | PerImage:
        """Metric that is computed for each image."""
        return metric_of(self.context)

    def __call__(self, widths: Widths) -> float:
        """Return the mean over the images."""
        return self.in_parts(widths)[0]

    def in_parts(self, widths: Widths) -> tuple[float, list[float]]:
        """Return the mean over the images and over each eighth of them; no parts if there are too few images."""
        found = self.per_image(widths)
        even = found[: len(found) // _PARTS * _PARTS].reshape(-1, _PARTS)
        parts = even.mean(axis=0).tolist() if len(even) else []
        return float(torch.from_numpy(found).mean()), parts

    def per_image(self, widths: Widths) -> FloatArray:
        """Return the score of each image, shape `(images,)`."""
        with self.network(widths) as network:
            return self._evaluator(network).per_image(())

    def _evaluator(self, network: nn.Module) -> SupernetEvaluator:
        return network_evaluator(self.context, network, self.batches, self.precision)


def supernet_scorer(context: Context, supernet: Supernet) -> Scorer:
    """Return the scorer that uses the paths of a supernet."""
    workload = context.workload
    return Scorer(
        supernet_evaluator(context, supernet, workload.validation),
        supernet_evaluator(context, supernet, workload.fresh),
    )


def network_score(context: Context, network: nn.Module) -> float:
    """Return the score of a network in eval mode on the validation images, in the units of the run's metric."""
    precision = context.settings.training.precision
    return network_evaluator(context, network, context.workload.validation, precision).on_side((), Side.LEFT)


def held_out_loss(context: Context, network: nn.Module) -> float:
    """Return the task's mean loss of a network in eval mode on the validation images."""
    task = context.workload.source.task
    score = task.loss_score if isinstance(task, Classification) else task.score
    precision = context.settings.training.precision
    return -network_evaluator(context, network, context.workload.validation, precision, score).on_side((), Side.LEFT)


def network_evaluator(
    context: Context,
    network: nn.Module,
    batches: Sequence[Batch],
    precision: Precision,
    metric: Metric | PerImage | None = None,
) -> SupernetEvaluator:
    """Return an evaluator of a plain network in eval mode on `batches`, for the run's metric or another.

    It ignores widths and has one side.
    """
    device = next(network.parameters()).device
    task = context.workload.source.task

    def logits(images: Pytree, _: Widths, __: Side) -> torch.Tensor:
        with autocast(precision, device):
            output: torch.Tensor = task.main_output(call_model(network, images))
        return output

    return SupernetEvaluator(logits, batches, metric or metric_of(context), (Side.LEFT,))


def metric_of(context: Context) -> Metric | PerImage:
    """Return the metric of the run's scores: a built-in one, or a custom function."""
    source = context.workload.source
    if source.own.per_image is not None:
        return source.own.per_image
    if not isinstance(source.task, Classification):
        return source.task.score
    metric: Metric = getattr(context.settings.method, "score", "accuracy")
    return source.task.loss_score if metric == "loss" and source.task.class_weights is not None else metric


def supernet_evaluator(context: Context, supernet: Supernet, batches: Sequence[Batch]) -> SupernetEvaluator:
    """Return an evaluator of widths on `batches` by the paths of a supernet, from the sides it was trained on."""
    settings = context.settings
    assert settings.options.device is not None
    precision = settings.supernet_recipe.precision
    device = torch.device(settings.options.device)
    task = context.workload.source.task

    def logits(images: torch.Tensor, widths: Widths, side: Side) -> torch.Tensor:
        with autocast(precision, device):
            output: torch.Tensor = task.main_output(supernet(images, widths, side))
        return output

    return SupernetEvaluator(logits, batches, metric_of(context), STRATEGIES[method_of(settings).strategy]().sides)
