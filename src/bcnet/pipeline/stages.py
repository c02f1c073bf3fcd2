"""The stages of a run. Each reads its output from the run directory where it is finished, and else makes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bcnet.data import all_batches
from bcnet.errors import RunError
from bcnet.pipeline.choice import Choice, choice, finalists
from bcnet.pipeline.disk import check_room, search_bytes, training_bytes
from bcnet.pipeline.progress import Advance, Reporter
from bcnet.pipeline.run_directory import RunDirectory
from bcnet.pipeline.score import score_text
from bcnet.pipeline.settings import Settings
from bcnet.pipeline.subject import Subject
from bcnet.searchers import (
    EvaluationStore,
    Evolution,
    Prior,
    Rescored,
    SearchResult,
    SupernetEvaluator,
    learn_prior,
    rescore,
    search_widths,
)
from bcnet.space import Cost, Side, Widths
from bcnet.supernet import Supernet, build
from bcnet.train import (
    CHECKPOINT_SECONDS,
    STRATEGIES,
    Accuracy,
    Checkpoints,
    LossRecords,
    NetworkTrainee,
    Progress,
    SupernetTrainee,
    accuracy,
    autocast,
    derived_generator,
    load_module,
    read_tensors,
    train,
    write_tensors,
)


@dataclass(frozen=True)
class Context:
    """What every stage needs. Training is saved every `checkpoint_seconds`, for the result it makes no difference."""

    settings: Settings
    subject: Subject
    directory: RunDirectory
    reporter: Reporter
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    def checkpoints(self, stage: str, widths: Widths = ()) -> Checkpoints:
        """How a training stage saves its state; no widths for the supernet."""
        about = {"classes": self.subject.data.num_classes, "widths": list(widths)}
        return dataclasses.replace(self.directory.checkpoints(stage, about), every_seconds=self.checkpoint_seconds)


@dataclass(frozen=True)
class Trained:
    """A network trained from scratch, with its one look at the test set; `skipped` steps were bad and left out."""

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
    weights, losses = directory.file("supernet.safetensors"), directory.file("records.safetensors")
    identity = directory.identity("supernet")
    if not weights.exists():
        trainee = SupernetTrainee(supernet, STRATEGIES[context.settings.strategy]())
        total = len(subject.training) * recipe.epochs
        losses_ahead = total * len(trainee.plan(torch.Generator()))
        check_room(directory.path, "supernet", training_bytes(supernet, recipe, losses_ahead, trainee.num_groups))
        with directory.timed("supernet"), context.reporter.stage("supernet", total, "steps") as advance:
            records = train(
                trainee,
                subject.training,
                recipe,
                seed=context.settings.seed,
                stage="supernet",
                checkpoints=context.checkpoints("supernet"),
                on_step=_step_reporter(context, "supernet", advance),
            )
        records.save(losses, directory.identity("records"))
        trainee.counts.save(directory.file("counts.safetensors"), directory.identity("counts"))
        write_tensors(weights, supernet.state_dict(), identity)
    directory.drop_checkpoints("supernet")
    load_module(supernet, read_tensors(weights, identity)[0], weights)
    return supernet.eval(), LossRecords.load(losses, directory.identity("records"))


def find_prior(context: Context, records: LossRecords) -> Prior:
    """The prior over widths (spec, section 4)."""
    directory, space = context.directory, context.subject.space
    if not directory.file("prior.json").exists():
        with directory.timed("prior"), context.reporter.stage("prior", 1, "problem") as advance:
            prior = learn_prior(
                space,
                records.steps,
                records.widths,
                records.losses,
                context.settings.budget,
                seed=context.settings.seed,
            )
            directory.write("prior.json", prior.to_dict())
            advance(1, f"{prior.effective_widths:.1f} effective widths per group")
    return Prior.from_dict(directory.read("prior.json"), space)


def evolve(context: Context, supernet: Supernet, prior: Prior) -> SearchResult:
    """The search (spec, section 5), replayed from its stored evaluations as far as they go."""
    settings, subject, directory = context.settings, context.subject, context.directory
    searcher = Evolution(settings.population, settings.generations, settings.parents, prior)
    score = _evaluator(context, supernet, subject.validation)
    if not directory.file("rescored.json").exists():
        check_room(directory.path, "evolution", search_bytes(searcher.limit, len(subject.space.groups)))
    best = float("-inf")
    with (
        EvaluationStore(directory.file("evaluations.sqlite"), subject.space, settings.fingerprint()) as store,
        _timed_unless(len(store.evaluations) >= searcher.limit, directory, "evolution"),
        context.reporter.stage("evolution", searcher.limit, "candidates") as advance,
    ):
        stored = len(store.evaluations)

        def report(candidate: Any, done: int, limit: int) -> None:
            nonlocal best
            best = max(best, candidate.score)
            if done > stored:  # what is replayed says nothing about speed, and has been reported
                figures = {"score": candidate.score, "best score": best, "macs": float(candidate.cost.macs)}
                context.reporter.figures("evolution", done, figures)
                advance(done, f"best score {score_text(best, settings.score)}")

        return search_widths(
            subject.space,
            score,
            settings.budget,
            searcher=searcher,
            seed=settings.seed if settings.search_seed is None else settings.search_seed,
            store=store,
            callback=report,
        )


def choose(context: Context, supernet: Supernet, found: SearchResult) -> Choice:
    """Score the best candidates again on fresh data, and choose one of them (see `choice`)."""
    file = context.directory.file("rescored.json")
    fresh = sum(len(labels) for _, labels in context.subject.fresh)
    inside = [c for c in found.evaluations if found.budget.admits(c.cost)]
    if not file.exists():
        with context.directory.timed("rescore"):
            best = finalists(inside, context.settings.rescored)
            again = rescore(best, _evaluator(context, supernet, context.subject.fresh), len(best))
            rows = [[list(r.candidate.widths), r.score, r.low, r.high] for r in again]
            context.directory.write("rescored.json", {"rescored": rows})
    known = {c.widths: c for c in inside}
    try:
        rows = context.directory.read("rescored.json")["rescored"]
        rescored = [Rescored(known[tuple(w)], float(score), float(low), float(high)) for w, score, low, high in rows]
    except (KeyError, TypeError, ValueError, OverflowError):
        rescored = []
    if not rescored:
        raise RunError(f"{file} names widths that evaluations.sqlite lacks: restore the two files, or start a new run")
    return choice(rescored, sum(len(labels) for _, labels in context.subject.validation), fresh)


def train_final(
    context: Context, name: str, file_name: str, widths: Widths, teacher: nn.Module | None = None
) -> Trained:
    """A network of the given widths, trained from scratch and tested once (spec, section 6)."""
    subject, directory, settings = context.subject, context.directory, context.settings
    seed = settings.seed if settings.final_seed is None else settings.final_seed
    network = build(
        subject.model,
        subject.space,
        widths,
        factory=subject.source.factory,
        generator=derived_generator(seed, "initial weights"),
    ).to(settings.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    file, identity = directory.file(f"{file_name}.safetensors"), directory.identity(name)
    if not file.exists():
        total = len(subject.all_training) * settings.final.epochs
        check_room(directory.path, name, training_bytes(network, settings.final, total))
        with directory.timed(name), context.reporter.stage(name, total, "steps") as advance:
            records = train(
                NetworkTrainee(network),
                subject.all_training,
                settings.final,
                seed=seed,
                stage="final",
                checkpoints=context.checkpoints(name, widths),
                teacher=teacher,
                on_step=_step_reporter(context, name, advance),
            )
        records.save(directory.file(f"{file_name}_losses.safetensors"), directory.identity(f"{name} losses"))
        test = _test(context, network)
        outcome = {"widths": list(widths), "skipped": len(records.skipped), **dataclasses.asdict(test)}
        write_tensors(file, network.state_dict(), identity, outcome)
    directory.drop_checkpoints(name)
    tensors, state = read_tensors(file, identity)
    if state.get("widths") != list(widths):
        raise RunError(f"{file} holds widths {state.get('widths')}; expected {list(widths)}: start a new run")
    load_module(network, tensors, file)
    test, skipped = _outcome(file, state)
    return Trained(name, widths, subject.space.cost(widths), network.eval(), test, skipped)


def _outcome(file: Path, state: Mapping[str, Any]) -> tuple[Accuracy, int]:
    """What a network did on the test images, and how many steps of its training were left out."""
    try:
        accuracy = Accuracy(float(state["top1"]), float(state["top5"]), int(state["count"]))
        return accuracy, int(state["skipped"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RunError(f"{file} does not say how its network did on the test images: start a new run") from None


def _test(context: Context, network: nn.Module) -> Accuracy:
    data, recipe = context.subject.data, context.settings.final
    assert context.settings.score_batch_size is not None
    batches = all_batches(data.test, min(context.settings.score_batch_size, len(data.test)), data.normaliser)
    return accuracy(network, batches, precision=recipe.precision)


def _evaluator(
    context: Context, supernet: Supernet, batches: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> SupernetEvaluator:
    assert context.settings.device is not None
    precision, device = context.settings.supernet.precision, torch.device(context.settings.device)
    trained_sides = STRATEGIES[context.settings.strategy]().sides

    def logits(images: torch.Tensor, widths: Widths, side: Side) -> torch.Tensor:
        side = side if side in trained_sides else trained_sides[0]
        with autocast(precision, device):
            output: torch.Tensor = supernet(images, widths, side)
        return output

    return SupernetEvaluator(logits, batches, context.settings.score)


def _step_reporter(context: Context, stage: str, advance: Advance) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        context.reporter.figures(stage, progress.step, {"loss": progress.loss, "learning rate": progress.lr})
        skipped = f", {progress.skipped} bad steps left out" if progress.skipped else ""
        advance(progress.step, f"epoch {progress.epoch}/{progress.epochs}, loss {progress.loss:.3f}{skipped}")

    return report


@contextmanager
def _timed_unless(finished: bool, directory: RunDirectory, stage: str) -> Any:
    if finished:
        yield
    else:
        with directory.timed(stage):
            yield
