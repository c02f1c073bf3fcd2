"""Scorers of candidates: the paths of a supernet, networks of their own, or the user's own function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from bcnet.data import Batch
from bcnet.machine.precision import Precision, autocast
from bcnet.nests import Nest, call_network
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
    """Scores candidates, and scores the best again on fresh images; None where a score is final.

    `longer` says that the second score follows on more training than the first, and so decides alone. `mapper` asks for
    several scores; None for the one of the run's processes.
    """

    score: Score
    again: ImageScores | None = None
    longer: bool = False
    mapper: Mapper | None = None


FloatArray = np.ndarray[tuple[int], np.dtype[np.float64]]
_PARTS = 8  # of the images of a score, to see how far it can be believed


@dataclass(frozen=True)
class NetworkScores(ABC):
    """Scores of widths on `batches`, each by a network that is made and trained for them alone (a `PartScore`)."""

    context: Context
    batches: Sequence[Batch]

    @property
    @abstractmethod
    def precision(self) -> Precision:
        """Return what the networks compute in."""

    @abstractmethod
    def network(self, widths: Widths) -> AbstractContextManager[nn.Module]:
        """The network of these widths, trained, in eval mode; it is needed until the context ends."""

    @property
    def metric(self) -> Metric | PerImage:
        """Return what is made of the images."""
        return metric_of(self.context)

    def __call__(self, widths: Widths) -> float:
        """The mean over the images."""
        return self.in_parts(widths)[0]

    def in_parts(self, widths: Widths) -> tuple[float, list[float]]:
        """The mean over the images, and over every eighth of them; none where there are fewer images."""
        found = self.per_image(widths)
        even = found[: len(found) // _PARTS * _PARTS].reshape(-1, _PARTS)
        parts = even.mean(axis=0).tolist() if len(even) else []
        return float(torch.from_numpy(found).mean()), parts

    def per_image(self, widths: Widths) -> FloatArray:
        """Scores of the single images, shape `(images,)`."""
        with self.network(widths) as network:
            return self._evaluator(network).per_image(())

    def _evaluator(self, network: nn.Module) -> SupernetEvaluator:
        return network_evaluator(self.context, network, self.batches, self.precision)


def supernet_scorer(context: Context, supernet: Supernet) -> Scorer:
    """Return what scores candidates and the best of them again by the paths of a supernet."""
    workload = context.workload
    return Scorer(
        supernet_evaluator(context, supernet, workload.validation),
        supernet_evaluator(context, supernet, workload.fresh),
    )


def network_score(context: Context, network: nn.Module) -> float:
    """The score of a plain network in eval mode on the validation images, in the units of the run's metric."""
    precision = context.settings.training.precision
    return network_evaluator(context, network, context.workload.validation, precision).on_side((), Side.LEFT)


def held_out_loss(context: Context, network: nn.Module) -> float:
    """The task's mean loss of a plain network in eval mode on the validation images."""
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
    """Return what scores a plain network in eval mode on `batches`, by the run's metric or another.

    It is asked for a score of no widths, and of one side.
    """
    device = next(network.parameters()).device
    task = context.workload.source.task

    def logits(images: Nest, _: Widths, __: Side) -> torch.Tensor:
        with autocast(precision, device):
            output: torch.Tensor = task.main_output(call_network(network, images))
        return output

    return SupernetEvaluator(logits, batches, metric or metric_of(context), (Side.LEFT,))


def metric_of(context: Context) -> Metric | PerImage:
    """Return what a run makes of the logits of images: its own score, or the user's."""
    source = context.workload.source
    if source.own.per_image is not None:
        return source.own.per_image
    if not isinstance(source.task, Classification):
        return source.task.score
    metric: Metric = getattr(context.settings.method, "score", "accuracy")
    return source.task.loss_score if metric == "loss" and source.task.class_weights is not None else metric


def supernet_evaluator(context: Context, supernet: Supernet, batches: Sequence[Batch]) -> SupernetEvaluator:
    """Return what scores widths on `batches` by the paths of a supernet, from the sides that it was trained by."""
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
