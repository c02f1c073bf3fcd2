"""Stage of candidates that are scored by a short training each.

A trial (`bcnet.stages.starting`) is trained by one process, so candidates can be distributed over several. The test
images are not used. The best candidates can be trained again for longer (`Trainings.finalist_epochs`), and these
trainings alone decide between them: many short trainings and a few long ones, as in successive halving.
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
from bcnet.machine.devices import Precision
from bcnet.methods import Trainings, TrainingsMethod
from bcnet.methods.trainings import for_epochs
from bcnet.progress.forecast import Planned
from bcnet.run import names
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.searchers.search import Mapper
from bcnet.space import Widths
from bcnet.stages.base import TRAINING_PASS, Context, training_bytes
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
    """Stage that scores candidates by short trainings."""

    name: ClassVar[str] = "trials"
    needs: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str] = "training"

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """One short training per candidate."""
        images = len(workload.training_batches) * settings.training.batch_size * method_of(settings).length
        work = images * (TRAINING_PASS * usual_macs(workload) + workload.macs_of_answers)
        total = candidates_of(workload.source.own.searcher, settings)
        kind = "side by side" if settings.options.side_by_side > 1 else self.kind
        return Planned(self.name, total, "networks", work, kind=kind, file=names.RESCORED)

    def output(self, context: Context) -> Searched:
        """Return the search by replaying its store."""
        return searched_by(context, searcher_of(context), trial_scorer(context), self.name)


def trial_scorer(context: Context) -> Scorer:
    """Return the scorer that trains candidates. The networks are discarded."""
    settings = context.settings
    workload = context.workload
    method = method_of(settings)
    if settings.start == "original":
        context.output("original")  # by all processes together, before they share out the candidates
    epochs = method.length
    longer = longer_epochs(settings)
    context.directory.checkpoint("trial")  # makes the folder, which all processes do together
    kept = candidates_of(None, settings) if method.continues_best else 1  # largest number of trials at once
    room = training_bytes(workload.model, for_epochs(settings.training, max(epochs, longer or 0)))
    context.directory.check_room("trials", kept * room)
    scorer = Scorer(_Trials(context, workload.validation, epochs), mapper=_mapper(context))
    if longer is None:
        return scorer
    return dataclasses.replace(scorer, again=_Trials(context, workload.fresh, longer), longer=True)


def _mapper(context: Context) -> Mapper | None:
    """Return the mapper that trains several candidates at once in copies of this process; None if not requested."""
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
        sort_once(context)  # shared by all copies
    return functools.partial(map_side_by_side, processes=processes)


def method_of(settings: Settings) -> TrainingsMethod:
    """Return the method of a run that trains its candidates."""
    method = settings.method
    assert isinstance(method, TrainingsMethod), "only such a method has trials"
    return method


def longer_epochs(settings: Settings) -> int | None:
    """Return the epochs of the finalists' longer training; None if there is none."""
    return settings.method.finalist_epochs if isinstance(settings.method, Trainings) else None


@dataclass(frozen=True)
class _Trials(NetworkScores):
    """Scores of widths on `batches` after a trial of `epochs`, possibly a fraction."""

    epochs: float

    @property
    def precision(self) -> Precision:
        """Precision of the final networks."""
        return self.context.settings.training.precision

    def per_image(self, widths: Widths) -> FloatArray:
        """See `NetworkScores`; always with a candidate's number of threads."""
        with threads(self.context.settings.options.candidate_threads):
            return super().per_image(widths)

    @contextmanager
    def network(self, widths: Widths) -> Iterator[nn.Module]:
        """Yield the network after its trial.

        Its checkpoints are removed once it is scored, unless its training continues.
        """
        yield trained_trial(self.context, widths, self.epochs).eval()
        if not method_of(self.context.settings).continues_best:
            drop_trial(self.context, widths, self.epochs)
