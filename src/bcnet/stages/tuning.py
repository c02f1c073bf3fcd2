"""Scores of candidates that are cut out of the supernet and fine-tuned for a few steps, each by itself.

Weights that all widths share suit some of them better than others: paths with many narrow layers at once are rarely
drawn in training, and score less than they would with weights of their own. A short training apart takes most of that
handicap away, at the price of some training steps for every candidate (`Settings.tune_steps`, docs/tuned_scores.md). It
starts at the supernet's own learning rate: at a fifth of it (`Settings.tune_lr_share`) the candidates stay so close to
the shared weights that those which the supernet favours stay ahead.

The network holds the first channels of every group, so its score is of one side, not the mean over both (Eq. 15). All
candidates see the same images in the same order, none that score them, and end with batch-norm statistics of training
images. Each is tuned by one process, so that candidates can be shared out among several. The test images take no part.

The best can be tuned again from the supernet's weights, for more steps (`Settings.finalist_steps`): a few networks can
be given what all candidates cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count, islice

import torch
from torch import nn

from bcnet.data import Batch
from bcnet.machine.precision import Precision
from bcnet.run.settings import Settings
from bcnet.space import Widths
from bcnet.stages.base import Context
from bcnet.stages.scores import NetworkScores, Scorer, supernet_scorer
from bcnet.stages.starting import first_channels, recalibrated
from bcnet.supernet import Supernet
from bcnet.train import EpochBatches, NetworkLearner, Recipe, train
from bcnet.train.recipe import Cosine


def scorer_of(context: Context, supernet: Supernet) -> Scorer:
    """What scores the candidates of a run and its best again: the supernet, or networks fine-tuned from it."""
    settings = context.settings
    workload = context.workload
    scorer = supernet_scorer(context, supernet)
    if settings.tune_steps:
        first = Tuned(context, workload.validation, supernet, settings.tune_steps)
        scorer = Scorer(first, replace(first, batches=workload.fresh))
    if settings.finalist_steps:
        again = Tuned(context, workload.fresh, supernet, settings.finalist_steps)
        scorer = replace(scorer, again=again, longer=True)
    return scorer


@dataclass(frozen=True)
class Tuned(NetworkScores):
    """Scores of widths on `batches`, after `steps` of fine-tuning."""

    supernet: Supernet
    steps: int

    @property
    def precision(self) -> Precision:
        """The supernet's."""
        return self.context.settings.supernet.precision

    @contextmanager
    def network(self, widths: Widths) -> Iterator[nn.Module]:
        """The first channels of the supernet, fine-tuned."""
        settings = self.context.settings
        workload = self.context.workload
        network = first_channels(settings, workload, self.supernet, widths)
        train(
            NetworkLearner(network, workload.source.task),
            _Steps(workload.training, self.steps),
            _recipe(settings),
            seed=settings.seed,
            stage="tuning",
        )
        yield recalibrated(network, workload.training, settings.seed).eval()


def _recipe(settings: Settings) -> Recipe:
    """The supernet's, with a learning rate that falls to 0 by a cosine."""
    lr = settings.tune_lr_share * settings.supernet.lr
    return settings.supernet.model_copy(update={"epochs": 1, "lr": lr, "schedule": Cosine(), "warmup_epochs": 0.0})


@dataclass(frozen=True)
class _Steps:
    """Training data whose epoch is `steps` batches, of as many passes over `batches` as that takes."""

    batches: EpochBatches
    steps: int

    def __len__(self) -> int:
        return self.steps

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        return islice(chain.from_iterable(self.batches.epoch(generator) for _ in count()), self.steps)
