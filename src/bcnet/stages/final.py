"""Stages of the final networks: original, Uniform and searched, trained alike and tested once (spec, section 6)."""

from __future__ import annotations

import copy
import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from bcnet.costs import Cost
from bcnet.errors import RunError
from bcnet.files.tensors import load_module
from bcnet.machine.defaults import place
from bcnet.methods import Given, TrainingsMethod, Uniform
from bcnet.progress.forecast import Planned
from bcnet.run import names
from bcnet.run.directory import RunDirectory
from bcnet.run.score import measurement_of
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.space import Widths
from bcnet.stages.base import TRAINING, TRAINING_PASS, Context, Stage, copy_tensors, training_bytes
from bcnet.stages.calibration import MEASURING, with_models
from bcnet.stages.scores import held_out_loss
from bcnet.stages.starting import drop_trials, empty_network, from_scratch, interrupted_trial, starting_network
from bcnet.stages.supernet import read_for_supernet
from bcnet.tasks import Measurement
from bcnet.train import EarlyStopping, EpochBatches, Interrupted, LossRecords, NetworkLearner, train

HELD_OUT = ("options.validation_fraction", "options.fresh_fraction")
"""Settings that determine which images are held out."""


@dataclass(frozen=True)
class TrainedNetwork:
    """A final network with its test result; `skipped` counts steps left out because their gradients were not finite.

    With early stopping, `ended` is (epochs trained, best epoch).

    """

    name: str
    widths: Widths
    cost: Cost
    network: nn.Module
    test: Measurement
    skipped: int
    ended: tuple[int, int] | None = None


class FinalStage(Stage):
    """Base of the stages that train a final network."""

    kind: ClassVar[str] = "training"

    @abstractmethod
    def widths(self, context: Context) -> Widths:
        """Return the widths to train."""

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """Return the settings of the training, of the supernet if it starts from it, and of the held-out images."""
        ending = HELD_OUT if settings.training.early_stopping is not None else ()
        return (*TRAINING, *ending, *(read_for_supernet(settings) if settings.start == "supernet" else ()))

    def macs(self, settings: Settings, workload: Workload) -> float:
        """Return the approximate multiply-adds of the network."""
        reference = workload.space.reference
        limit = workload.budget.resolve(reference).macs
        most = int(reference.macs)
        return most if limit is None else min(int(limit), most)

    def teacher(self, context: Context) -> nn.Module | None:
        """Return the teacher, if the recipe distils: the given one, or the original."""
        if context.settings.training.distillation is None:
            return None
        given = context.workload.source.own.teacher
        if given is not None:
            return place(copy.deepcopy(given), context.settings.options.device, context.workload.source.layout)
        teacher: nn.Module = context.output("original").network
        return teacher

    def unfinished_training(self, context: Context, widths: Widths) -> Callable[[], Interrupted] | None:
        """Return a function that loads an unfinished training to continue; None to train from the start."""
        return None

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """All steps of the training."""
        recipe = settings.training
        taught = workload.space.reference.macs if recipe.distillation is not None else workload.macs_of_answers
        own = TRAINING_PASS * self.macs(settings, workload)
        work = recipe.batch_size * (own + (0 if self.name == OriginalStage.name else taught))
        total = len(_batches(settings, workload)) * recipe.epochs
        return Planned(self.name, total, "steps", work, kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Train and test the network; write its losses, and its weights with the test result."""
        workload = context.workload
        directory = context.directory
        settings = context.settings
        widths = self.widths(context)
        network = self._start(context, widths)
        context.check_processes(self.name)
        records = self._train(context, widths, network)
        directory.write_tensors(f"{self._stem}_losses.safetensors", f"{self.name} losses", records.tensors())
        test = context.world.on_rank_zero(
            lambda: dataclasses.asdict(
                workload.source.task.test(network, workload.parts.test(), precision=settings.training.precision)
            )
        )
        ended = {"ended": list(records.ended)} if records.ended else {}
        outcome = {**_facts_before_test(context, widths), "skipped": len(records.skipped), **ended, **test}
        directory.write_tensors(self.file, self.name, network.state_dict(), outcome)

    def _train(self, context: Context, widths: Widths, network: nn.Module) -> LossRecords:
        """Train the network and return its losses."""
        workload = context.workload
        settings = context.settings
        teacher = self.teacher(context)
        batches = _batches(settings, workload)
        total = len(batches) * settings.training.epochs
        context.directory.check_room(self.name, training_bytes(network, settings.training, total))
        with context.work(self.name, total, "steps") as advance:
            return train(
                NetworkLearner(network, workload.source.task),
                batches,
                settings.training,
                seed=settings.training_seed,
                stage="final",
                checkpoints=context.checkpoints(self.name),
                teacher=teacher,
                on_step=context.step_reporter(self.name, advance),
                world=context.world,
                interrupted=self.unfinished_training(context, widths),
                stopping=_early_stopping(context),
            )

    def load(self, context: Context) -> TrainedNetwork:
        """Return the network in eval mode with its test result."""
        directory = context.directory
        widths = self.widths(context)
        file = directory.file(self.file)
        network = empty_network(context, widths)
        directory.drop_checkpoints(self.name)
        tensors, state = directory.read_tensors(self.file, self.name)
        if state.get("widths") != list(widths):
            raise RunError(f"{file} holds widths {state.get('widths')}; expected {list(widths)}: start a new run")
        load_module(network, tensors, file)
        cost = context.workload.space.cost(widths)
        return TrainedNetwork(self.name, widths, cost, network.eval(), *_outcome(file, state))

    def reuse(self, theirs: RunDirectory, context: Context) -> None:
        """Copy losses and weights."""
        marks = {f"{self._stem}_losses": f"{self.name} losses", self._stem: self.name}
        copy_tensors(theirs, context.directory, marks)

    @property
    def _stem(self) -> str:
        return self.file.removesuffix(".safetensors")

    def _start(self, context: Context, widths: Widths) -> nn.Module:
        return starting_network(context, widths)


class OriginalStage(FinalStage):
    """Stage of the original network, trained and tested like the others."""

    name: ClassVar[str] = "original"
    file: ClassVar[str] = names.ORIGINAL

    def widths(self, context: Context) -> Widths:
        """Full widths."""
        return context.workload.space.original_widths

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """Like the base class, without the start of other networks if the original itself starts from scratch."""
        not_read = {"teacher"} | ({"start"} if settings.start in ("scratch", "original") else set())
        return tuple(name for name in super().reads(settings) if name not in not_read)

    def macs(self, settings: Settings, workload: Workload) -> float:
        """Exact multiply-adds."""
        return float(workload.space.reference.macs)

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """No work for an imitation, where the original stays as it is."""
        planned = super().plan(settings, workload)
        return dataclasses.replace(planned, work=0.0) if workload.source.task.imitates else planned

    def teacher(self, context: Context) -> nn.Module | None:
        """None; the original is the teacher."""
        return None

    def _start(self, context: Context, widths: Widths) -> nn.Module:
        if context.workload.source.task.imitates:
            return copy.deepcopy(context.workload.original)
        own = context.settings.start == "original"
        return from_scratch(context, widths) if own else super()._start(context, widths)

    def _train(self, context: Context, widths: Widths, network: nn.Module) -> LossRecords:
        """Train the original, except for an imitation."""
        if context.workload.source.task.imitates:
            return LossRecords(NetworkLearner(network).num_groups)
        return super()._train(context, widths, network)


class UniformStage(FinalStage):
    """Stage of the Uniform baseline under the run's budget."""

    name: ClassVar[str] = "Uniform"
    file: ClassVar[str] = names.UNIFORM

    def widths(self, context: Context) -> Widths:
        """Return the widths of one ratio for all groups."""
        return context.workload.space.uniform(context.workload.budget)

    def agrees(self, theirs: RunDirectory, context: Context) -> bool:
        """Budgets may differ if they give the same widths and report the same measures."""
        measuring = (stage for stage in context.stages if stage.name in MEASURING)
        if not all(stage.is_in(context.directory) for stage in measuring):
            return False  # this run has not measured the cost of widths yet
        known = with_models(context)
        _, state = theirs.read_tensors(self.file, self.name)
        stored = {key: state[key] for key in ("widths", "others") if key in state}
        return stored == _facts_before_test(known, self.widths(known))


class SearchedStage(FinalStage):
    """Stage of the network with the widths that the run found or was given."""

    name: ClassVar[str] = "searched"
    file: ClassVar[str] = names.FINAL
    needs: ClassVar[tuple[str, ...]] = ("original", "Uniform")

    def widths(self, context: Context) -> Widths:
        """Return the widths that the run's method finds.

        Raises:
            WidthError: the widths do not fit the space.
            RunError: the widths exceed the budget.
        """
        workload = context.workload
        widths = tuple(context.settings.method.widths(context))
        workload.space.check(widths)
        within = workload.budget.resolve(workload.space.reference).admits(workload.space.cost(widths))
        if not within and not isinstance(context.settings.method, Given):
            raise RunError(
                f"a method must give widths within the budget, {workload.budget}; {context.settings.method.name} gave "
                f"{list(widths)}: return others from widths()"
            )
        return widths

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """All settings, since the widths depend on them."""
        return Stage.reads(self, settings)

    def macs(self, settings: Settings, workload: Workload) -> float:
        """Zero if the widths are the Uniform ones."""
        return 0 if isinstance(settings.method, Uniform) else super().macs(settings, workload)

    def _start(self, context: Context, widths: Widths) -> nn.Module:
        """Start from the channels that a pruner kept."""
        kept = context.settings.method.select_channels(context) if context.settings.start == "original" else ()
        return starting_network(context, widths, kept)

    def unfinished_training(self, context: Context, widths: Widths) -> Callable[[], Interrupted] | None:
        """Return the trial of a random network whose own training continues."""
        method = context.settings.method
        if not isinstance(method, TrainingsMethod) or not method.continues_best:
            return None
        return partial(interrupted_trial, context, widths, method.trial(context.settings.training).epochs)

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """No work if the widths are the Uniform ones; less if a trial continues."""
        planned = super().plan(settings, workload)
        method = settings.method
        if isinstance(method, Uniform):
            return dataclasses.replace(planned, work=0.0)
        if not isinstance(method, TrainingsMethod) or not method.continues_best:
            return planned
        done = method.trial(settings.training).epochs / settings.training.epochs
        return dataclasses.replace(planned, work=(1 - done) * planned.work)

    def load(self, context: Context) -> TrainedNetwork:
        """Load the network; trials are then deleted."""
        trained = super().load(context)
        drop_trials(context)
        return trained

    def run(self, context: Context) -> None:
        """Train the network; for the Uniform widths, copy that stage, since training would repeat it byte for byte."""
        if not isinstance(context.settings.method, Uniform):
            super().run(context)
            return
        directory = context.directory
        for end, mark in (("_losses", " losses"), ("", "")):
            tensors, state = directory.read_tensors(f"uniform{end}.safetensors", f"Uniform{mark}")
            directory.write_tensors(f"{self._stem}{end}.safetensors", f"{self.name}{mark}", tensors, state)


def _facts_before_test(context: Context, widths: Widths) -> dict[str, Any]:
    """Return the facts stored with a network of these widths before it is tested."""
    others = context.workload.space.cost(widths).others
    return {"widths": list(widths), **({"others": dict(others)} if others else {})}


def _batches(settings: Settings, workload: Workload) -> EpochBatches:
    """Return the training images of final networks: all except those used for early stopping."""
    return workload.all_training if settings.training.early_stopping is None else workload.training_batches


def _early_stopping(context: Context) -> EarlyStopping | None:
    patience = context.settings.training.early_stopping
    return None if patience is None else EarlyStopping(patience, partial(held_out_loss, context))


def _outcome(file: Path, state: Mapping[str, Any]) -> tuple[Measurement, int, tuple[int, int] | None]:
    """Return the test result, the number of skipped steps, and where early stopping ended the training."""
    try:
        ended = tuple(int(epoch) for epoch in state["ended"]) if "ended" in state else None
        if ended is not None and len(ended) != 2:
            raise ValueError(ended)
        return measurement_of(state), int(state["skipped"]), ended
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise RunError(f"{file} does not say how its network did on the test images: start a new run") from None
