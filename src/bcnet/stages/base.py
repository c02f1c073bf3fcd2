"""The stages of a run. Each reads its output from the run directory where it is finished, and else makes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bcnet.distributed import World
from bcnet.errors import RunError
from bcnet.files.tensors import load_module
from bcnet.prior import Prior, learn_prior
from bcnet.progress.base import Advance, Reporter
from bcnet.run.directory import RunDirectory
from bcnet.run.settings import Settings
from bcnet.run.subject import Subject
from bcnet.space import Cost, Widths
from bcnet.stages.passes import supernet_trainee
from bcnet.stages.room import training_bytes
from bcnet.stages.start import starting_network
from bcnet.supernet import Supernet
from bcnet.train import (
    CHECKPOINT_SECONDS,
    Accuracy,
    Checkpoints,
    LossRecords,
    NetworkTrainee,
    Progress,
    accuracy,
    train,
)


@dataclass(frozen=True)
class Context:
    """What every stage needs. All processes of `world` go through all stages; `reporter` is silent on all but one.

    Training is saved every `checkpoint_seconds`, for the result it makes no difference.
    """

    settings: Settings
    subject: Subject
    directory: RunDirectory
    reporter: Reporter
    world: World
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    def checkpoints(self, stage: str, widths: Widths = ()) -> Checkpoints:
        """How a training stage saves its state; no widths for the supernet."""
        about = {"classes": self.subject.data.num_classes, "widths": list(widths)}
        return dataclasses.replace(self.directory.checkpoints(stage, about), every_seconds=self.checkpoint_seconds)

    def check_processes(self, stage: str) -> None:
        """Raise RunError unless as many processes are here to train as the settings say; a search takes any number."""
        if self.world.size != self.settings.processes:
            raise RunError(
                f"stage {stage} of this run is trained by {self.settings.processes} processes, since batch norm and "
                f"the rounding of sums depend on it; got {self.world.size}: start as many with torchrun"
            )


@dataclass(frozen=True)
class Trained:
    """A final network, with its one look at the test set; `skipped` steps were bad and left out."""

    name: str
    widths: Widths
    cost: Cost
    network: nn.Module
    test: Accuracy
    skipped: int


def train_supernet(context: Context) -> tuple[Supernet, LossRecords]:
    """The trained supernet and the losses of its steps (spec, section 3)."""
    subject, directory, recipe = context.subject, context.directory, context.settings.supernet
    supernet = Supernet(subject.model, subject.space)
    file = directory.file("supernet.safetensors")
    if not directory.has(file.name):
        context.check_processes("supernet")
        trainee = supernet_trainee(supernet, context.settings, subject.data.image_shape)
        trainee.loss = subject.source.own.loss
        total = len(subject.training) * recipe.epochs
        losses_ahead = total * len(trainee.plan(torch.Generator()))
        directory.check_room("supernet", training_bytes(supernet, recipe, losses_ahead, trainee.num_groups))
        with directory.timed("supernet"), context.reporter.stage("supernet", total, "steps") as advance:
            records = train(
                trainee,
                subject.training,
                recipe,
                seed=context.settings.seed,
                stage="supernet",
                checkpoints=context.checkpoints("supernet"),
                on_step=_step_reporter(context, "supernet", advance),
                world=context.world,
            )
        directory.write_tensors("records.safetensors", "records", records.tensors())
        directory.write_tensors("counts.safetensors", "counts", trainee.counts.tensors())
        directory.write_tensors(file.name, "supernet", supernet.state_dict())
    directory.drop_checkpoints("supernet")
    load_module(supernet, directory.read_tensors(file.name, "supernet")[0], file)
    return supernet.eval(), LossRecords.from_tensors(directory.read_tensors("records.safetensors", "records")[0])


def find_prior(context: Context, records: LossRecords) -> Prior:
    """The prior over widths (spec, section 4)."""
    directory, space, settings = context.directory, context.subject.space, context.settings

    def learnt() -> dict[str, Any]:
        columns = (records.steps, records.widths, records.losses)
        return learn_prior(space, *columns, settings.budget, seed=settings.seed).to_dict()

    if not directory.has("prior.json"):
        with directory.timed("prior"), context.reporter.stage("prior", 1, "problem") as advance:
            document = context.world.on_lead(learnt)
            directory.write("prior.json", document)
            advance(1, f"{Prior.from_dict(document, space).effective_widths:.1f} effective widths per group")
    return Prior.from_dict(directory.read("prior.json"), space)


def train_final(
    context: Context,
    name: str,
    file_name: str,
    widths: Widths,
    supernet: Supernet | None,
    teacher: nn.Module | None = None,
) -> Trained:
    """A network of the given widths, trained and tested once (spec, section 6)."""
    subject, directory, settings = context.subject, context.directory, context.settings
    network = starting_network(settings, subject, supernet, widths)
    file = directory.file(f"{file_name}.safetensors")
    if not directory.has(file.name):
        context.check_processes(name)
        total = len(subject.all_training) * settings.final.epochs
        directory.check_room(name, training_bytes(network, settings.final, total))
        with directory.timed(name), context.reporter.stage(name, total, "steps") as advance:
            records = train(
                NetworkTrainee(network, subject.source.own.loss),
                subject.all_training,
                settings.final,
                seed=settings.seed_of_networks,
                stage="final",
                checkpoints=context.checkpoints(name, widths),
                teacher=teacher,
                on_step=_step_reporter(context, name, advance),
                world=context.world,
            )
        directory.write_tensors(f"{file_name}_losses.safetensors", f"{name} losses", records.tensors())
        test = context.world.on_lead(lambda: dataclasses.asdict(_test(context, network)))
        outcome = {"widths": list(widths), "skipped": len(records.skipped), **test}
        directory.write_tensors(file.name, name, network.state_dict(), outcome)
    directory.drop_checkpoints(name)
    tensors, state = directory.read_tensors(file.name, name)
    if state.get("widths") != list(widths):
        raise RunError(f"{file} holds widths {state.get('widths')}; expected {list(widths)}: start a new run")
    load_module(network, tensors, file)
    tested, skipped = _outcome(file, state)
    return Trained(name, widths, subject.space.cost(widths), network.eval(), tested, skipped)


def train_original(context: Context, supernet: Supernet | None) -> Trained:
    """The original network, trained and tested as the others are."""
    return train_final(context, "original", "original", context.subject.space.original_widths, supernet)


def same_again(context: Context, twin: Trained, twin_file: str, name: str, file_name: str) -> Trained:
    """A final network of the widths of its `twin`: training it would repeat the other training, byte by byte."""
    directory = context.directory
    if not directory.has(f"{file_name}.safetensors"):
        for end, mark in (("_losses", " losses"), ("", "")):
            tensors, state = directory.read_tensors(f"{twin_file}{end}.safetensors", f"{twin.name}{mark}")
            directory.write_tensors(f"{file_name}{end}.safetensors", f"{name}{mark}", tensors, state)
    return dataclasses.replace(twin, name=name)


def _outcome(file: Path, state: Mapping[str, Any]) -> tuple[Accuracy, int]:
    """What a network did on the test images, and how many steps of its training were left out."""
    try:
        accuracy = Accuracy(float(state["top1"]), float(state["top5"]), int(state["count"]))
        return accuracy, int(state["skipped"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RunError(f"{file} does not say how its network did on the test images: start a new run") from None


def _test(context: Context, network: nn.Module) -> Accuracy:
    return accuracy(network, context.subject.parts.test(), precision=context.settings.final.precision)


def _step_reporter(context: Context, stage: str, advance: Advance) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        context.reporter.figures(stage, progress.step, {"loss": progress.loss, "learning rate": progress.lr})
        skipped = f", {progress.skipped} bad steps left out" if progress.skipped else ""
        advance(progress.step, f"epoch {progress.epoch}/{progress.epochs}, loss {progress.loss:.3f}{skipped}")

    return report
