"""The training loop, one for supernet and final network.

A run is a pure function of (initial weights, data, recipe, seed): step `t` draws everything random from generators
derived from (seed, stage, t), so the state is weights, optimiser, scaler, step and loss records, and a run resumed at
any step ends with the same bytes as one that never stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path as FilePath
from typing import Any, NoReturn, Protocol

import torch
from torch import nn

from bcnet.errors import RunError, TrainingError
from bcnet.train.checkpoint import load_module, read_latest, write_tensors
from bcnet.train.incident import Incident
from bcnet.train.objective import Objective
from bcnet.train.optimizer import optimizer_tensors, restore_optimizer
from bcnet.train.precision import autocast, resolve_precision
from bcnet.train.randomness import derived_generator, derived_seed, own_global_randomness
from bcnet.train.recipe import Recipe
from bcnet.train.records import LossRecords
from bcnet.train.schedule import learning_rate
from bcnet.train.step import accumulate_gradients
from bcnet.train.trainee import Trainee
from bcnet.train.update import Seen, Updates

Batch = tuple[torch.Tensor, torch.Tensor]
CHECKPOINT_SECONDS = 30.0


class EpochBatches(Protocol):
    """Training data: `len` batches an epoch, in an order drawn from a generator."""

    def __len__(self) -> int: ...

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """One pass: images `(batch, ...)` and labels `(batch,)`."""
        ...


@dataclass(frozen=True)
class Progress:
    """Where training stands after a step: `step` of `total` are done, `skipped` of them left out as bad.

    `loss` is the mean of the terms of the last good step that was looked at (`bcnet.train.guard`).
    """

    step: int
    total: int
    epoch: int
    epochs: int
    loss: float
    lr: float
    skipped: int = 0


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often to save: `every_steps`, or after `every_seconds`, and always at the end.

    Where saving is slow it is done less often, so that it takes at most 2 % of the time.
    `identity` names the run and stage; a file of another identity is refused. A step that ends the run is saved for
    replay in the folder `bad_steps`, with what `about` says of the module.
    """

    path: FilePath
    identity: dict[str, Any]
    every_seconds: float = CHECKPOINT_SECONDS
    every_steps: int | None = None
    bad_steps: FilePath | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


Callback = Callable[[Progress], object]


def train(
    trainee: Trainee,
    batches: EpochBatches,
    recipe: Recipe,
    *,
    seed: int,
    stage: str = "training",
    checkpoints: Checkpoints | None = None,
    teacher: nn.Module | None = None,
    on_step: Callback | None = None,
    on_epoch: Callback | None = None,
) -> LossRecords:
    """Train to the recipe's end, from the newest checkpoint where there is one.

    Args:
        trainee: what to train, in place.
        batches: the training data; an epoch is one pass over it.
        recipe: how to train.
        seed: of every random draw, together with `stage` and the position.
        stage: a name for error messages, and so that stages of one run draw differently.
        checkpoints: where to save the state; without it nothing is saved.
        teacher: gives the logits to learn from where the recipe distils.
        on_step: called after every step.
        on_epoch: called after every epoch.

    Returns:
        The widths and mean losses of all steps that were not left out, also those before a resume.

    Raises:
        TrainingError: a loss or gradient that is not a finite number, a loss that explodes (`bcnet.train.health`), or
            no batch in an epoch.
        RunError: a checkpoint that is damaged, belongs to something else, or cannot be written.
    """
    run = _Run(trainee, batches, recipe, seed, stage, checkpoints, teacher)
    run.restore()
    trainee.module.train()
    with own_global_randomness(run.device):
        run.go(on_step, on_epoch)
    run.records.skipped = tuple(run.updates.health.skipped)
    return run.records


class _Run:
    """The moving parts of one training run."""

    def __init__(
        self,
        trainee: Trainee,
        batches: EpochBatches,
        recipe: Recipe,
        seed: int,
        stage: str,
        checkpoints: Checkpoints | None,
        teacher: nn.Module | None,
    ) -> None:
        if len(batches) < 1:
            raise TrainingError(f"stage {stage}: an epoch needs at least one batch; got none: lower batch_size")
        self.trainee, self.batches, self.recipe = trainee, batches, recipe
        self.seed, self.stage, self.checkpoints = seed, stage, checkpoints
        self.teacher = teacher.eval() if teacher is not None else None
        self.device = next(trainee.module.parameters()).device
        self.precision = resolve_precision(recipe.precision, self.device)
        self.updates = Updates(trainee.module, recipe, self.precision)
        self.records = LossRecords(trainee.num_groups)
        self.loss = math.nan  # of the last good step looked at
        self.step = 0
        self.total = len(batches) * recipe.epochs
        self.last_save = time.monotonic()
        self.save_seconds = 0.0

    def go(self, on_step: Callback | None, on_epoch: Callback | None) -> None:
        length = len(self.batches)
        for epoch in range(self.step // length, self.recipe.epochs):
            order = derived_generator(self.seed, self.stage, "data", epoch)
            for position, (x, y) in enumerate(self.batches.epoch(order)):
                if position < self.step - epoch * length:
                    continue  # trained before the resume
                progress = self.train_on(x.to(self.device), y.to(self.device), epoch)
                if on_step is not None:
                    on_step(progress)
            if on_epoch is not None:
                on_epoch(progress)

    def train_on(self, x: torch.Tensor, y: torch.Tensor, epoch: int) -> Progress:
        """One step on images `x` `(batch, ...)` and labels `y` `(batch,)`."""
        lr = learning_rate(self.recipe, self.step, len(self.batches))
        terms = self.trainee.plan(derived_generator(self.seed, self.stage, "widths", self.step))
        torch.manual_seed(self.noise_seed(self.step))
        objective = Objective(self.trainee, self.recipe, self.precision, x, y, self.teach(x))
        self.updates.begin()
        losses = accumulate_gradients(terms, objective, self.updates.backward)
        self.updates.measure(self.step, terms, losses, objective.classes)
        due = self.save_is_due()
        seen = self.updates.finish(lr, look=due or self.step + 1 == self.total)
        offender = self.updates.offender(seen)
        if offender is not None:
            self.stop(offender, x, y)
        for good in (s for s in seen if not s.verdict.bad):
            for term, loss in zip(good.terms, good.losses, strict=True):
                self.records.append(good.step, term.recorded, loss)
            self.trainee.trained(good.terms)
            self.loss = sum(good.losses) / len(good.losses)
        self.step += 1
        if due and self.checkpoints is not None:
            self.save(self.checkpoints)
        skipped = len(self.updates.health.skipped)
        return Progress(self.step, self.total, epoch + 1, self.recipe.epochs, self.loss, lr, skipped)

    def noise_seed(self, step: int) -> int:
        return derived_seed(self.seed, self.stage, "noise", step)

    def teach(self, x: torch.Tensor) -> torch.Tensor | None:
        if self.teacher is None or self.recipe.distillation is None:
            return None
        with torch.no_grad(), autocast(self.precision, self.device):
            logits: torch.Tensor = self.teacher(x)
        return logits

    def stop(self, seen: Seen, x: torch.Tensor, y: torch.Tensor) -> NoReturn:
        """End the run at a step that went wrong; `x` and `y` are the batch of the newest."""
        if seen.step != self.step:
            x, y = self.batch_of(seen.step)
        batch = {"x": x, "y": y, "taught": self.teach(x)}
        incident = Incident(
            stage=self.stage,
            step=seen.step,
            fault=seen.verdict.fault,
            terms=seen.terms,
            losses=seen.losses,
            norm=seen.norm,
            lr=learning_rate(self.recipe, seen.step, len(self.batches)),
            noise_seed=self.noise_seed(seen.step),
            channels_last=x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last),
            recipe=self.recipe.model_copy(update={"precision": self.precision}),
            about=self.checkpoints.about if self.checkpoints else {},
            scaler=self.updates.scaler.state_dict(),
            tensors=self.tensors() | {f"batch:{name}": part for name, part in batch.items() if part is not None},
        )
        raise TrainingError(incident.message(self.keep(incident)))

    def keep(self, incident: Incident) -> str:
        """Save the step for replay where that is wanted, and say where it is."""
        if self.checkpoints is None or self.checkpoints.bad_steps is None:
            return "nothing of it reached the weights"
        try:
            path = incident.save(self.checkpoints.bad_steps, self.checkpoints.identity)
        except RunError as error:
            return f"it could not be saved for replay: {error}"
        return f"saved for replay in {path}"

    def batch_of(self, step: int) -> Batch:
        epoch, position = divmod(step, len(self.batches))
        order = derived_generator(self.seed, self.stage, "data", epoch)
        x, y = next(islice(self.batches.epoch(order), position, None))
        return x.to(self.device), y.to(self.device)

    def save_is_due(self) -> bool:
        """Whether to save after the step at hand."""
        if self.checkpoints is None:
            return False
        every, done = self.checkpoints.every_steps, self.step + 1
        if done == self.total or (every is not None and done % every == 0):
            return True
        return time.monotonic() - self.last_save >= max(self.checkpoints.every_seconds, 50 * self.save_seconds)

    def save(self, checkpoints: Checkpoints) -> None:
        start = time.monotonic()
        done = {f"records:{name}": tensor for name, tensor in self.records.tensors().items()}
        done |= {f"trainee:{name}": tensor for name, tensor in self.trainee.tensors().items()}
        state = {
            "step": self.step,
            "total": self.total,
            "scaler": self.updates.scaler.state_dict(),
            "health": self.updates.health.state(),
        }
        write_tensors(checkpoints.path, self.tensors() | done, checkpoints.identity, state, keep_previous=True)
        self.last_save = time.monotonic()
        self.save_seconds = self.last_save - start

    def tensors(self) -> dict[str, torch.Tensor]:
        """Weights and optimiser."""
        module = self.trainee.module
        tensors = {f"module:{name}": tensor for name, tensor in module.state_dict().items()}
        optimizer = optimizer_tensors(module, self.updates.optimizer)
        return tensors | {f"optimizer:{name}": tensor for name, tensor in optimizer.items()}

    def restore(self) -> None:
        if self.checkpoints is None:
            return
        found = read_latest(self.checkpoints.path, self.checkpoints.identity)
        if found is None:
            return
        tensors, state = found
        parts = {kind: _section(tensors, kind) for kind in ("module", "optimizer", "records", "trainee")}
        load_module(self.trainee.module, parts["module"], self.checkpoints.path)
        restore_optimizer(self.trainee.module, self.updates.optimizer, parts["optimizer"])
        self.records = LossRecords.from_tensors(parts["records"])
        self.trainee.restore(parts["trainee"])
        self.step = int(state["step"])
        self.updates.scaler.load_state_dict(state["scaler"])
        self.updates.health.restore(state["health"])


def _section(tensors: dict[str, torch.Tensor], kind: str) -> dict[str, torch.Tensor]:
    prefix = f"{kind}:"
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
