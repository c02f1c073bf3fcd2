"""Stages of the supernet (spec, sections 3 and 4): its training, in pairs of paths if that is faster, and the prior."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from bcnet.errors import RecipeError
from bcnet.files.tensors import load_module
from bcnet.methods import BCNet, SupernetMethod
from bcnet.prior import Prior, learn_prior
from bcnet.progress.forecast import Planned
from bcnet.run import names
from bcnet.run.directory import RunDirectory
from bcnet.run.inputs import InputFacts
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.stages.base import TRAINING, TRAINING_PASS, Context, Stage, copy_tensors, training_bytes
from bcnet.stages.starting import reorder_trained
from bcnet.supernet import Supernet, both_ends
from bcnet.supernet.pairs import Pairs, UnpairableError, are_worthwhile
from bcnet.train import STRATEGIES, LossRecords, SupernetLearner, derived_generator, train

_SUPERNET = (
    "method.start",
    *("method.training", "method.strategy", "method.pairs"),
    *("options.validation_fraction", "options.fresh_fraction", "options.layout"),
)
_SAMPLES = 64  # draws of widths, for the mean work of a step


def method_of(settings: Settings) -> SupernetMethod:
    """Return the method of a run that trains a supernet."""
    method = settings.method
    assert isinstance(method, SupernetMethod), "only such a method has the stages of a supernet"
    return method


def read_for_supernet(settings: Settings) -> tuple[str, ...]:
    """Return the settings that a supernet depends on: its recipe, and the original's if it starts from that."""
    return (*_SUPERNET, *(TRAINING if settings.method.inherits else ()))


class SupernetStage(Stage):
    """Stage of the trained supernet and the losses of its steps."""

    name: ClassVar[str] = "supernet"
    file: ClassVar[str] = names.SUPERNET
    kind: ClassVar[str] = "training"

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """See `read_for_supernet`."""
        return read_for_supernet(settings)

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """All steps, each with the mean work of some draws."""
        space = workload.space
        recipe = settings.supernet_recipe
        generator = derived_generator(settings.seed, "forecast")
        strategy = STRATEGIES[method_of(settings).strategy]()
        costs = [
            sum(space.cost(path.widths).macs for term in strategy.plan(space, generator) for path in term.paths)
            for _ in range(_SAMPLES)
        ]
        work = TRAINING_PASS * recipe.batch_size * float(torch.tensor(costs, dtype=torch.float64).mean())
        total = len(workload.training_batches) * recipe.epochs
        return Planned(self.name, total, "steps", work, kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Train the supernet; write its weights, the losses of its steps, and how often each channel was trained."""
        workload = context.workload
        directory = context.directory
        recipe = context.settings.supernet_recipe
        supernet = Supernet(_starting_model(context), workload.space)
        context.check_processes(self.name)
        learner = supernet_learner(supernet, context.settings, workload.source.input)
        learner.task = workload.source.task
        total = len(workload.training_batches) * recipe.epochs
        losses_ahead = total * len(learner.plan(torch.Generator()))
        directory.check_room(self.name, training_bytes(supernet, recipe, losses_ahead, learner.num_groups))
        with context.work(self.name, total, "steps") as advance:
            records = train(
                learner,
                workload.training_batches,
                recipe,
                seed=context.settings.seed,
                stage=self.name,
                checkpoints=context.checkpoints(self.name),
                on_step=context.step_reporter(self.name, advance),
                world=context.world,
            )
        directory.write_tensors(names.RECORDS, "records", records.tensors())
        directory.write_tensors(names.COUNTS, "counts", learner.counts.tensors())
        directory.write_tensors(self.file, self.name, supernet.state_dict())

    def load(self, context: Context) -> tuple[Supernet, LossRecords]:
        """Return the trained supernet in eval mode, and the losses of its steps."""
        directory = context.directory
        directory.drop_checkpoints(self.name)
        supernet = Supernet(context.workload.model, context.workload.space)
        load_module(supernet, directory.read_tensors(self.file, self.name)[0], directory.file(self.file))
        return supernet.eval(), LossRecords.from_tensors(directory.read_tensors(names.RECORDS, "records")[0])

    def reuse(self, theirs: RunDirectory, context: Context) -> None:
        """Copy weights, records and counts."""
        copy_tensors(theirs, context.directory, {"records": "records", "counts": "counts", "supernet": "supernet"})


def _starting_model(context: Context) -> nn.Module:
    """Return the model with the weights that the supernet starts from."""
    method = method_of(context.settings)
    if not method.inherits:
        return context.workload.model
    from_both = len(STRATEGIES[method.strategy]().sides) == 2
    return reorder_trained(context, lambda orders: both_ends(orders, context.workload.space) if from_both else orders)


def supernet_learner(supernet: Supernet, settings: Settings, inputs: InputFacts) -> SupernetLearner:
    """Return the learner that trains the supernet by the settings, for such inputs.

    Raises:
        RecipeError: the settings require pairs, but the network's paths cannot share a pass.
    """
    method = method_of(settings)
    strategy = STRATEGIES[method.strategy]()
    batch = method.recipe.batch_size
    if method.pairs == "off" or (method.pairs == "auto" and not are_worthwhile(supernet.space, batch)):
        return SupernetLearner(supernet, strategy)
    x = inputs.draw_random(2, torch.Generator().manual_seed(0), normal=True)
    try:
        pairs = Pairs.verify(supernet.network, supernet.space, x)
    except UnpairableError as error:
        if method.pairs == "on":
            raise RecipeError(
                f"pairs=on needs a network whose channels stay apart in its forward; got {settings.model}: {error}: "
                "leave pairs at auto"
            ) from None
        pairs = None
    return SupernetLearner(supernet, strategy, pairs)


class PriorStage(Stage):
    """Stage of the prior over widths."""

    name: ClassVar[str] = "prior"
    file: ClassVar[str] = names.PRIOR
    needs: ClassVar[tuple[str, ...]] = ("supernet",)
    kind: ClassVar[str] = "prior"

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """Settings of the supernet, the budget, and the prior."""
        own = ("keep_records", "records_since", "effective_widths", "tightened")
        return (*read_for_supernet(settings), *(f"method.{name}" for name in own), "limits")

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """One problem to solve, in seconds."""
        return Planned(self.name, 1, "problem", kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Fit the prior on one process."""
        space = context.workload.space
        settings = context.settings
        method = settings.method
        assert isinstance(method, BCNet), "only BCNet has a prior"
        records = context.output("supernet")[1]

        def learnt() -> dict[str, Any]:
            return learn_prior(
                space,
                records.steps,
                records.widths,
                records.losses,
                context.workload.budget,
                keep=method.keep_records,
                since=method.records_since,
                effective_widths=method.effective_widths,
                tightened=method.tightened,
                seed=settings.seed,
            ).to_dict()

        with context.work(self.name, 1, "problem") as advance:
            document = context.world.on_rank_zero(learnt)
            context.directory.write(self.file, document)
            advance(1, f"{Prior.from_dict(document, space).effective_widths:.1f} effective widths per group")

    def load(self, context: Context) -> Prior:
        """Return the prior."""
        return Prior.from_dict(context.directory.read(self.file), context.workload.space)
