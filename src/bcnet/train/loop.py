"""The training loop, one for supernet and final network.

A run is a pure function of (initial weights, data, recipe, seed): step `t` draws everything random from generators
derived from (seed, stage, t), so the state is weights, optimiser, scaler, step and loss records, and a run resumed at
any step ends with the same bytes as one that never stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Protocol

import torch
from torch import nn

from bcnet.errors import TrainingError
from bcnet.train.checkpoint import load_module, read_latest, write_tensors
from bcnet.train.distill import classification_loss
from bcnet.train.optimizer import make_optimizer, optimizer_tensors, restore_optimizer
from bcnet.train.precision import autocast, resolve_precision
from bcnet.train.randomness import derived_generator, derived_seed, own_global_randomness
from bcnet.train.recipe import Recipe
from bcnet.train.records import LossRecords
from bcnet.train.schedule import learning_rate
from bcnet.train.step import Path, Term, accumulate_gradients
from bcnet.train.trainee import Trainee

Batch = tuple[torch.Tensor, torch.Tensor]


class EpochBatches(Protocol):
    """Training data: `len` batches an epoch, in an order drawn from a generator."""

    def __len__(self) -> int: ...

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """One pass: images `(batch, ...)` and labels `(batch,)`."""
        ...


@dataclass(frozen=True)
class Progress:
    """Where training stands after a step: `step` of `total` are done, `loss` is the mean of the step's terms."""

    step: int
    total: int
    epoch: int
    epochs: int
    loss: float
    lr: float


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often to save: `every_steps`, or after `every_seconds`, and always at the end.

    Where saving is slow it is done less often, so that it takes at most 2 % of the time.
    `identity` names the run and stage; a file of another identity is refused.
    """

    path: FilePath
    identity: dict[str, Any]
    every_seconds: float = 30.0
    every_steps: int | None = None


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
        The widths and mean losses of all steps, also those before a resume.

    Raises:
        TrainingError: a loss that is not a finite number, or no batch in an epoch.
        RunError: a checkpoint that is damaged, belongs to something else, or cannot be written.
    """
    run = _Run(trainee, batches, recipe, seed, stage, checkpoints, teacher)
    run.restore()
    trainee.module.train()
    with own_global_randomness(run.device):
        run.go(on_step, on_epoch)
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
        self.optimizer = make_optimizer(trainee.module, recipe)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")
        self.records = LossRecords(trainee.num_groups)
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
                self.save_if_due()
                if on_step is not None:
                    on_step(progress)
            if on_epoch is not None:
                on_epoch(progress)

    def train_on(self, x: torch.Tensor, y: torch.Tensor, epoch: int) -> Progress:
        """One step on images `x` `(batch, ...)` and labels `y` `(batch,)`."""
        lr = learning_rate(self.recipe, self.step, len(self.batches))
        terms = self.trainee.plan(derived_generator(self.seed, self.stage, "widths", self.step))
        torch.manual_seed(derived_seed(self.seed, self.stage, "noise", self.step))
        taught = self.teach(x)

        def path_loss(path: Path) -> torch.Tensor:
            with autocast(self.precision, self.device):
                logits = self.trainee.forward(x, path)
            return classification_loss(logits, y, self.recipe, taught)

        self.optimizer.zero_grad(set_to_none=True)
        means = accumulate_gradients(terms, path_loss, lambda loss: torch.autograd.backward(self.scaler.scale(loss)))
        losses = self.check(terms, means.tolist(), lr)
        self.update(lr)
        for term, loss in zip(terms, losses, strict=True):
            self.records.append(self.step, term.recorded, loss)
        self.step += 1
        return Progress(self.step, self.total, epoch + 1, self.recipe.epochs, sum(losses) / len(losses), lr)

    def teach(self, x: torch.Tensor) -> torch.Tensor | None:
        if self.teacher is None or self.recipe.distillation is None:
            return None
        with torch.no_grad(), autocast(self.precision, self.device):
            logits: torch.Tensor = self.teacher(x)
        return logits

    def check(self, terms: tuple[Term, ...], losses: list[float], lr: float) -> list[float]:
        for term, loss in zip(terms, losses, strict=True):
            if not math.isfinite(loss):
                where = f" at widths {list(term.recorded)}" if term.recorded else ""
                raise TrainingError(
                    f"stage {self.stage}, step {self.step}{where}: a loss must be a finite number; got {loss}: "
                    f"lower lr ({lr:.4g} at this step), set clip_norm, or take precision fp32 (now {self.precision})"
                )
        return losses

    def update(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        if self.recipe.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.trainee.module.parameters(), self.recipe.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def save_if_due(self) -> None:
        if self.checkpoints is None:
            return
        every = self.checkpoints.every_steps
        due = self.step == self.total or (every is not None and self.step % every == 0)
        now = time.monotonic()
        if due or now - self.last_save >= max(self.checkpoints.every_seconds, 50 * self.save_seconds):
            self.save(self.checkpoints)
            self.last_save = time.monotonic()
            self.save_seconds = self.last_save - now

    def save(self, checkpoints: Checkpoints) -> None:
        tensors = {f"module:{name}": tensor for name, tensor in self.trainee.module.state_dict().items()}
        optimizer = optimizer_tensors(self.trainee.module, self.optimizer)
        tensors |= {f"optimizer:{name}": tensor for name, tensor in optimizer.items()}
        tensors |= {f"records:{name}": tensor for name, tensor in self.records.tensors().items()}
        state = {"step": self.step, "total": self.total, "scaler": self.scaler.state_dict()}
        write_tensors(checkpoints.path, tensors, checkpoints.identity, state, keep_previous=True)

    def restore(self) -> None:
        if self.checkpoints is None:
            return
        found = read_latest(self.checkpoints.path, self.checkpoints.identity)
        if found is None:
            return
        tensors, state = found
        parts = {kind: _section(tensors, kind) for kind in ("module", "optimizer", "records")}
        load_module(self.trainee.module, parts["module"], self.checkpoints.path)
        restore_optimizer(self.trainee.module, self.optimizer, parts["optimizer"])
        self.records = LossRecords.from_tensors(parts["records"])
        self.step = int(state["step"])
        self.scaler.load_state_dict(state["scaler"])


def _section(tensors: dict[str, torch.Tensor], kind: str) -> dict[str, torch.Tensor]:
    prefix = f"{kind}:"
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
