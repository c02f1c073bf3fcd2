"""The stage that trains the supernet (spec, section 3): by its settings' strategy, two paths to a pass where faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from bcnet.errors import RecipeError
from bcnet.files.tensors import load_module
from bcnet.progress.forecast import Planned
from bcnet.run.directory import RunDirectory
from bcnet.run.settings import Settings, in_sections
from bcnet.run.subject import Subject
from bcnet.stages.base import TRAINING_PASS, Context, Stage, copy_tensors
from bcnet.stages.room import training_bytes
from bcnet.supernet import Supernet
from bcnet.supernet.pairs import Pairs, UnpairableError, worthwhile
from bcnet.train import STRATEGIES, LossRecords, SupernetTrainee, derived_generator, train

_SAMPLES = 64  # draws of widths, for the mean work of a step


class SupernetStage(Stage):
    """Comes to the trained supernet and the losses of its steps."""

    name: ClassVar[str] = "supernet"
    file: ClassVar[str] = "supernet.safetensors"
    kind: ClassVar[str] = "training"

    def applies(self, settings: Settings) -> bool:
        """Where widths are searched on one."""
        return settings.has_supernet

    def reads(self, settings: Settings) -> frozenset[str]:
        """Its own recipe and strategy, and which images are held out."""
        return in_sections("supernet")

    def plan(self, settings: Settings, subject: Subject) -> Planned:
        """All steps, each of the mean work of some draws."""
        space, recipe = subject.space, settings.supernet
        generator = derived_generator(settings.seed, "forecast")
        strategy = STRATEGIES[settings.strategy]()
        costs = [
            sum(space.cost(path.widths).macs for term in strategy.plan(space, generator) for path in term.paths)
            for _ in range(_SAMPLES)
        ]
        work = TRAINING_PASS * recipe.batch_size * float(torch.tensor(costs, dtype=torch.float64).mean())
        total = len(subject.training) * recipe.epochs
        return Planned(self.name, total, "steps", work, kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Train it; leave its weights, the losses of its steps, and how often each channel was trained."""
        subject, directory, recipe = context.subject, context.directory, context.settings.supernet
        supernet = Supernet(subject.model, subject.space)
        context.check_processes(self.name)
        trainee = supernet_trainee(supernet, context.settings, subject.data.image_shape)
        trainee.task = subject.source.task
        total = len(subject.training) * recipe.epochs
        losses_ahead = total * len(trainee.plan(torch.Generator()))
        directory.check_room(self.name, training_bytes(supernet, recipe, losses_ahead, trainee.num_groups))
        with context.working(self.name, total, "steps") as advance:
            records = train(
                trainee,
                subject.training,
                recipe,
                seed=context.settings.seed,
                stage=self.name,
                checkpoints=context.checkpoints(self.name),
                on_step=context.step_reporter(self.name, advance),
                world=context.world,
            )
        directory.write_tensors("records.safetensors", "records", records.tensors())
        directory.write_tensors("counts.safetensors", "counts", trainee.counts.tensors())
        directory.write_tensors(self.file, self.name, supernet.state_dict())

    def load(self, context: Context) -> tuple[Supernet, LossRecords]:
        """The trained supernet in eval mode, and the losses of its steps."""
        directory = context.directory
        directory.drop_checkpoints(self.name)
        supernet = Supernet(context.subject.model, context.subject.space)
        load_module(supernet, directory.read_tensors(self.file, self.name)[0], directory.file(self.file))
        return supernet.eval(), LossRecords.from_tensors(directory.read_tensors("records.safetensors", "records")[0])

    def take_over(self, theirs: RunDirectory, context: Context) -> None:
        """Weights, records and counts."""
        copy_tensors(theirs, context.directory, {"records": "records", "counts": "counts", "supernet": "supernet"})


def supernet_trainee(supernet: Supernet, settings: Settings, image_shape: Sequence[int]) -> SupernetTrainee:
    """The supernet as the settings train it, on images `(channels, height, width)`.

    Raises:
        RecipeError: the settings ask for pairs, and the network's paths cannot share a pass.
    """
    strategy = STRATEGIES[settings.strategy]()
    batch = settings.supernet.batch_size
    if settings.pairs == "off" or (settings.pairs == "auto" and not worthwhile(supernet.space, batch)):
        return SupernetTrainee(supernet, strategy)
    x = torch.randn(2, *image_shape, generator=torch.Generator().manual_seed(0))
    try:
        pairs = Pairs.verified(supernet.network, supernet.space, x)
    except UnpairableError as error:
        if settings.pairs == "on":
            raise RecipeError(
                f"pairs=on needs a network whose channels stay apart in its forward; got {settings.model}: {error}: "
                "leave pairs at auto"
            ) from None
        pairs = None
    return SupernetTrainee(supernet, strategy, pairs)
