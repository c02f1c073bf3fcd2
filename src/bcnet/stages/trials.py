"""The stage of candidates that are networks, each scored after a short training of its own.

A trial (`bcnet.stages.starting`) is trained by one process, so that candidates can be shared out among several. The
test images take no part. The best can be trained again for longer (`Settings.finalist_epochs`), and are then told apart
by that alone: many short trainings and a few long ones, as successive halving has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from bcnet.machine.precision import Precision
from bcnet.progress.forecast import Planned
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.searchers import Random
from bcnet.space import Widths
from bcnet.stages.base import TRAINING_PASS, Context
from bcnet.stages.final import TRAINING
from bcnet.stages.room import training_bytes
from bcnet.stages.scores import NetworkScores, Scorer
from bcnet.stages.search import (
    RESCORED,
    EvolutionStage,
    Searched,
    candidates_of,
    searched_by,
    searcher_of,
    usual_macs,
)
from bcnet.stages.starting import drop_trial, trained_trial


class TrialsStage(EvolutionStage):
    """Comes to all that was trained for a short while, and to what scored it."""

    name: ClassVar[str] = "trials"
    needs: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str] = "training"

    def applies(self, settings: Settings) -> bool:
        """For the baseline random, and the scorer of trainings."""
        return settings.has_trials

    def reads(self, settings: Settings) -> frozenset[str]:
        """How the trials are trained as well."""
        return super().reads(settings) | TRAINING

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """A short training for each."""
        recipe = settings.trial
        work = len(workload.training) * recipe.epochs * recipe.batch_size * TRAINING_PASS * usual_macs(workload)
        total = candidates_of(workload.source.own.searcher, settings)
        return Planned(self.name, total, "networks", work, kind=self.kind, file=RESCORED)

    def output(self, context: Context) -> Searched:
        """Replayed from what is kept, as every search."""
        scorer = trial_scorer(context)
        settings = context.settings
        searcher = Random(settings.candidates) if settings.baseline == "random" else searcher_of(context)
        return searched_by(context, searcher, scorer, self.name)


def trial_scorer(context: Context) -> Scorer:
    """Scores by short trainings, or by the user's own function of widths. The networks are not kept."""
    of_widths = context.workload.source.own.of_widths
    if of_widths is not None:
        return Scorer(of_widths)
    settings = context.settings
    workload = context.workload
    if settings.final_from == "original":
        context.output("original")  # by all processes together, before they share out the candidates
    longest = settings.trial_of(max(settings.trial.epochs, settings.finalist_epochs or 0))
    context.directory.checkpoint("trial")  # makes the folder, which all processes do together
    kept = settings.candidates if settings.random_continued else 1  # trials at once, at most
    context.directory.check_room("trials", kept * training_bytes(workload.model, longest))
    scorer = Scorer(_Trials(context, workload.validation, settings.trial.epochs))
    if settings.finalist_epochs is None:
        return scorer
    again = _Trials(context, workload.fresh, settings.finalist_epochs)
    return dataclasses.replace(scorer, again=again, longer=True)


@dataclass(frozen=True)
class _Trials(NetworkScores):
    """Scores of widths on `batches`, after a trial of `epochs`."""

    epochs: int

    @property
    def precision(self) -> Precision:
        """The final networks'."""
        return self.context.settings.final.precision

    @contextmanager
    def network(self, widths: Widths) -> Iterator[nn.Module]:
        """After its trial; the checkpoints are there until it is scored, or gone on with."""
        yield trained_trial(self.context, widths, self.epochs).eval()
        if not self.context.settings.random_continued:
            drop_trial(self.context, widths, self.epochs)
