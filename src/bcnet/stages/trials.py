"""The stage of candidates that are networks, each scored after a short training of its own.

A trial (`bcnet.stages.starting`) is trained by one process, so that candidates can be shared out among several. The
test images take no part. The best can be trained again for longer (`Trainings.finalist_epochs`), and are then told
apart by that alone: many short trainings and a few long ones, as successive halving has it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from bcnet.distributed import map_side_by_side
from bcnet.errors import RecipeError
from bcnet.machine.defaults import threads
from bcnet.machine.precision import Precision
from bcnet.methods import Trainings, TrainingsMethod
from bcnet.methods.trainings import for_epochs
from bcnet.progress.forecast import Planned
from bcnet.run import names
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.searchers.search import Mapper
from bcnet.space import Widths
from bcnet.stages.base import TRAINING_PASS, Context
from bcnet.stages.room import training_bytes
from bcnet.stages.scores import FloatArray, NetworkScores, Scorer
from bcnet.stages.search import (
    EvolutionStage,
    Searched,
    candidates_of,
    searched_by,
    searcher_of,
    usual_macs,
)
from bcnet.stages.starting import drop_trial, sort_once, trained_trial


class TrialsStage(EvolutionStage):
    """Comes to all that was trained for a short while, and to what scored it."""

    name: ClassVar[str] = "trials"
    needs: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str] = "training"

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """A short training for each."""
        images = len(workload.training_batches) * settings.training.batch_size * method_of(settings).length
        work = images * (TRAINING_PASS * usual_macs(workload) + workload.macs_of_answers)
        total = candidates_of(workload.source.own.searcher, settings)
        kind = "side by side" if settings.options.side_by_side > 1 else self.kind
        return Planned(self.name, total, "networks", work, kind=kind, file=names.RESCORED)

    def output(self, context: Context) -> Searched:
        """Replayed from what is kept, as every search."""
        return searched_by(context, searcher_of(context), trial_scorer(context), self.name)


def trial_scorer(context: Context) -> Scorer:
    """Return what scores candidates by short trainings. The networks are not kept."""
    settings = context.settings
    workload = context.workload
    method = method_of(settings)
    if settings.start == "original":
        context.output("original")  # by all processes together, before they share out the candidates
    epochs = method.length
    longer = longer_epochs(settings)
    context.directory.checkpoint("trial")  # makes the folder, which all processes do together
    kept = candidates_of(None, settings) if method.goes_on else 1  # trials at once, at most
    room = training_bytes(workload.model, for_epochs(settings.training, max(epochs, longer or 0)))
    context.directory.check_room("trials", kept * room)
    scorer = Scorer(_Trials(context, workload.validation, epochs), mapper=_mapper(context))
    if longer is None:
        return scorer
    return dataclasses.replace(scorer, again=_Trials(context, workload.fresh, longer), longer=True)


def _mapper(context: Context) -> Mapper | None:
    """Return what trains several candidates at once in copies of this process; None where none are wanted."""
    options = context.settings.options
    processes = options.side_by_side
    if processes < 2 or context.world.size > 1:
        return None
    if (options.candidate_threads or options.threads) != 1 or not context.workload.source.may_fork:
        raise RecipeError(
            "several candidates are trained at once by one CPU thread each, of data in memory, where no GPU is: got "
            f"at_once {processes}, {options.candidate_threads or options.threads} threads for each and "
            f"{context.settings.data}: leave --at-once out, or start a new run with --threads 1"
        )
    if context.settings.start in ("original", "pretrained"):
        sort_once(context)  # which all copies then share
    return functools.partial(map_side_by_side, processes=processes)


def method_of(settings: Settings) -> TrainingsMethod:
    """Return the method of a run that trains its candidates."""
    method = settings.method
    assert isinstance(method, TrainingsMethod), "only such a method has trials"
    return method


def longer_epochs(settings: Settings) -> int | None:
    """Return the epochs of the longer training that tells the best candidates apart; None where there is none."""
    return settings.method.finalist_epochs if isinstance(settings.method, Trainings) else None


@dataclass(frozen=True)
class _Trials(NetworkScores):
    """Scores of widths on `batches`, after a trial of `epochs`, or of a part of one."""

    epochs: float

    @property
    def precision(self) -> Precision:
        """The final networks'."""
        return self.context.settings.training.precision

    def per_image(self, widths: Widths) -> FloatArray:
        """See `NetworkScores`; by as many threads as a candidate is given, whatever trains it."""
        with threads(self.context.settings.options.candidate_threads):
            return super().per_image(widths)

    @contextmanager
    def network(self, widths: Widths) -> Iterator[nn.Module]:
        """After its trial; the checkpoints are there until it is scored, or gone on with."""
        yield trained_trial(self.context, widths, self.epochs).eval()
        if not method_of(self.context.settings).goes_on:
            drop_trial(self.context, widths, self.epochs)
