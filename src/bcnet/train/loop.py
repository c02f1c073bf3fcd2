"""Training loop of supernets and final networks.

A training is a pure function of (initial weights, data, recipe, seed): step `t` draws everything from generators
derived from (seed, stage, t). The state is therefore weights, optimizer, scaler, step and loss records, and a training
resumes bit-identically at any step. With several processes, each trains on its share of every batch; all take the same
steps with the same widths, and only rank 0 reads and writes checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from bcnet.data.transfer import move
from bcnet.distributed import Loaded, ProcessGroup
from bcnet.errors import RunError, TrainingError
from bcnet.files.tensors import Tensors, load_module
from bcnet.machine.defaults import computes_in
from bcnet.machine.devices import autocast, resolve_precision
from bcnet.pytree import Pytree, call_model, count, nth_part, slice_batch
from bcnet.train.batches import EpochBatches, share_of
from bcnet.train.learner import Learner
from bcnet.train.objective import Objective
from bcnet.train.optimizer import optimizer_tensors, restore_optimizer
from bcnet.train.randomness import derived_generator, derived_seed, own_global_randomness
from bcnet.train.recipe import Recipe
from bcnet.train.records import LossRecords
from bcnet.train.reduction import Reduction
from bcnet.train.saving import Checkpoints, Saver
from bcnet.train.schedule import learning_rate
from bcnet.train.step import Term, accumulate_gradients
from bcnet.train.stopping import BestEpoch, EarlyStopping
from bcnet.train.update import Seen, Updates, moving_average


@dataclass(frozen=True)
class Progress:
    """State of training after a step: `step` of `total` are done, `skipped` of them were bad.

    `loss` is the mean over the terms of the last good step that was checked (`bcnet.train.guard`).
    """

    step: int
    total: int
    epoch: int
    epochs: int
    loss: float
    lr: float
    skipped: int = 0


@dataclass(frozen=True)
class Interrupted:
    """A training interrupted after some of its recipe's epochs; `state` is its last checkpoint."""

    epochs: int
    state: Loaded


Callback = Callable[[Progress], object]
_USUAL_MOMENTUM = 0.1  # torch's default


def train(
    learner: Learner,
    batches: EpochBatches,
    recipe: Recipe,
    *,
    seed: int,
    stage: str = "training",
    checkpoints: Checkpoints | None = None,
    teacher: nn.Module | None = None,
    on_step: Callback | None = None,
    on_epoch: Callback | None = None,
    world: ProcessGroup | None = None,
    until: int | None = None,
    interrupted: Callable[[], Interrupted] | None = None,
    stopping: EarlyStopping | None = None,
) -> LossRecords:
    """Train to the end of the recipe, resuming from the newest checkpoint if there is one.

    Norms with momentum 0, which converters leave behind, would keep statistics that do not match their inputs; during
    training they have torch's default momentum of 0.1.

    Training can be split into two calls: `until=k`, then `interrupted` with its state. On the same data the result
    is the same.

    Args:
        learner: the learner to train, in place.
        batches: the training data; an epoch is one pass over it.
        recipe: the training recipe.
        seed: seed of every random draw, together with `stage` and the position.
        stage: a name for error messages, which also makes stages of one run draw differently.
        checkpoints: where to save the state; by default nothing is saved.
        teacher: returns the logits to imitate if the recipe distils.
        on_step: called after every step.
        on_epoch: called after every epoch.
        world: the processes that share the batches; by default this one alone. `batches` and `recipe.batch_size` are
            totals over all processes.
        until: stop after this number of the recipe's epochs, at the learning rates of the whole recipe.
        interrupted: returns a training to continue, possibly on other data: weights, optimizer and position in the
            schedule. Called only without a checkpoint.
        stopping: may end the training early, and selects the epoch whose weights are kept.

    Returns:
        Widths and mean losses of all steps that were not skipped, including those before a resume.

    Raises:
        TrainingError: a loss or gradient that is not finite, a diverging loss (`bcnet.train.health`), or an epoch
            without batches.
        RunError: a checkpoint is corrupt, belongs to something else, or cannot be written.
        ProcessError: another process has ended.
    """
    world = world or ProcessGroup()
    run = _Run(learner, batches, recipe, seed, stage, checkpoints, teacher, world, until, interrupted, stopping)
    run.restore()
    learner.module.train()
    with own_global_randomness(run.device), _statistics_follow(learner.module):
        run.train_to_end(on_step, on_epoch)
    run.copy_state_from_rank_zero()
    run.take_average()
    run.take_best()
    run.records.skipped = tuple(run.updates.health.skipped)
    return run.records


@contextmanager
def _statistics_follow(module: nn.Module) -> Iterator[None]:
    """Make norms discard the running statistics they have, within the block."""
    still = [part for part in module.modules() if isinstance(part, _NormBase) and part.momentum == 0]
    for norm in still:
        norm.momentum = _USUAL_MOMENTUM
    try:
        yield
    finally:
        for norm in still:
            norm.momentum = 0.0


class _Run:
    """State of one training."""

    def __init__(
        self,
        learner: Learner,
        batches: EpochBatches,
        recipe: Recipe,
        seed: int,
        stage: str,
        checkpoints: Checkpoints | None,
        teacher: nn.Module | None,
        world: ProcessGroup,
        until: int | None,
        interrupted: Callable[[], Interrupted] | None,
        stopping: EarlyStopping | None,
    ) -> None:
        if len(batches) < 1:
            raise TrainingError(f"stage {stage}: an epoch needs at least one batch; got none: lower batch_size")
        self.learner = learner
        self.whole_batches = batches
        self.recipe = recipe
        self.world = world
        self.batches = share_of(batches, world)
        self.seed = seed
        self.stage = stage
        self.checkpoints = checkpoints
        self.teacher = teacher.eval() if teacher is not None else None
        self.device = next(learner.module.parameters()).device
        self.precision = resolve_precision(recipe.precision, self.device)
        self.is_tried = recipe.precision != "auto" or self.precision != "bf16"  # "auto" tested bf16
        self.updates = Updates(learner.module, recipe, self.precision)
        self.reduction = Reduction(learner.module.parameters(), world)
        self.average = None if recipe.ema is None else moving_average(learner.module, recipe.ema)
        self.records = LossRecords(learner.num_groups)
        self.loss = math.nan  # of the last good step that was checked
        self.interrupted = interrupted
        self.stopping = stopping
        self.best = BestEpoch()
        self.epochs = recipe.epochs if until is None else until
        self.step = 0
        self.total = len(batches) * self.epochs
        self.saver = Saver(checkpoints, self.total, world)

    def train_to_end(self, on_step: Callback | None, on_epoch: Callback | None) -> None:
        """Train from `self.step` to the end; a partial epoch draws its order again and skips the finished batches."""
        length = len(self.batches)
        for epoch in range(self.step // length, self.epochs):
            if self.is_over(epoch):
                return
            # Every draw is a function of seed, stage and position, so no generator state has to be saved.
            order = derived_generator(self.seed, self.stage, "data", epoch)
            for position, (x, y) in enumerate(self.batches.epoch(order)):
                if position < self.step - epoch * length:
                    continue  # trained before the resume
                progress = self.train_on(move(x, self.device), move(y, self.device), epoch)
                if on_step is not None:
                    on_step(progress)
            if on_epoch is not None:
                on_epoch(progress)
        self.is_over(self.epochs)

    def is_over(self, epochs: int) -> bool:
        """Return whether training ends after these finished `epochs`; they may be the best so far."""
        if self.stopping is None:
            return False
        module = self.learner.module
        if self.best.seen < epochs:
            stopping, averaged = self.stopping, module if self.average is None else self.average.module
            loss = self.world.on_rank_zero(lambda: float(stopping.loss(averaged.eval())))
            module.train()
            self.best = self.best.best_after(averaged, loss, epochs)
        return epochs - self.best.epoch >= self.stopping.patience

    def train_on(self, x: Pytree, y: Pytree, epoch: int) -> Progress:
        """Take one step on this process's inputs `x` `(share, ...)` and targets `y` `(share, ...)`, possibly empty."""
        if not self.is_tried:
            self.is_tried = True
            if not computes_in(self.precision, self.learner.network, x, self.device):
                self.precision = "fp32"
        lr = learning_rate(self.recipe, self.step, len(self.batches))
        terms = self.learner.plan(derived_generator(self.seed, self.stage, "widths", self.step))
        torch.manual_seed(self.noise_seed(self.step))  # dropout uses the global generator
        self.updates.begin()
        losses, classes = self.gradients(terms, x, y)
        self.updates.measure(self.step, terms, losses, classes)
        look = self.saver.look_is_due(self.step + 1)
        due = self.saver.save_is_due(self.step + 1, look)
        seen = self.updates.finish(lr, look=look or due)
        offender = self.updates.offender(seen)
        if offender is not None:
            self.stop(offender)
        # A skipped step trained nothing: neither its losses nor its channels are counted.
        for good in (s for s in seen if not s.verdict.bad):
            for term, loss in zip(good.terms, good.losses, strict=True):
                self.records.append(good.step, term.recorded, loss)
            self.learner.count_step(good.terms)
            self.loss = sum(good.losses) / len(good.losses)
        if self.average is not None:
            self.average.update_parameters(self.learner.module)
        self.step += 1
        if due:
            self.saver.save(*self.state())
        skipped = len(self.updates.health.skipped)
        return Progress(self.step, self.total, epoch + 1, self.epochs, self.loss, lr, skipped)

    def gradients(self, terms: tuple[Term, ...], x: Pytree, y: Pytree) -> tuple[torch.Tensor, int]:
        """Set the parameters' gradients for the whole batch; return losses `(terms,)` and the number of classes."""
        if images := count(y):
            losses = torch.zeros(len(terms), device=self.device)
            pieces = min(self.recipe.accumulate, images)
            for number in range(pieces):
                part = nth_part(images, number, pieces)
                inputs = slice_batch(x, part)
                targets = slice_batch(y, part)
                share = count(targets) / images
                objective = Objective(self.learner, self.recipe, self.precision, inputs, targets, self.teach(inputs))
                backward = partial(self.add_gradients, share)
                losses += share * accumulate_gradients(terms, objective, backward, self.learner.passes)
            return self.reduction(losses, images, objective.classes)
        # The last batch of an epoch may have fewer images than there are processes; all must take part in the
        # reduction.
        none = torch.zeros(len(terms), device=self.device)
        self.updates.scaler.scale(none)  # a gradient scaler needs a loss before its first step
        return self.reduction(none, 0, 0)

    def add_gradients(self, share: float, loss: torch.Tensor) -> None:
        """Add the gradient of a part of the batch's loss."""
        self.updates.backward(share * loss)

    def noise_seed(self, step: int) -> int:
        """Return the seed of dropout, different on every process, since each has other images."""
        own = (self.world.rank,) if self.world.rank else ()
        return derived_seed(self.seed, self.stage, "noise", step, *own)

    def teach(self, x: Pytree) -> torch.Tensor | None:
        if self.teacher is None or self.recipe.distillation is None:
            return None
        with torch.no_grad(), autocast(self.precision, self.device):
            logits: torch.Tensor = self.learner.task.main_output(call_model(self.teacher, x))
        return logits

    def stop(self, seen: Seen) -> NoReturn:
        """End the training at a failed step, which has not changed the weights."""
        widths = " and ".join(str(list(term.recorded)) for term in seen.terms if term.recorded)
        where = f" at widths {widths}" if widths else ""
        lr = learning_rate(self.recipe, seen.step, len(self.batches))
        clip = self.recipe.clip_norm
        tries = [f"lower lr ({lr:.4g} at this step)"]
        tries.append("set clip_norm" if clip is None else f"lower clip_norm (now {clip:g})")
        tries += [f"take precision fp32 (now {self.precision})"] if self.precision != "fp32" else []
        finite = math.isfinite(sum(seen.losses) + seen.norm)
        policy = "explosion_factor=null" if finite else "on_bad_step=skip"
        raise TrainingError(
            f"stage {self.stage}, step {seen.step}{where}: {seen.verdict.fault}; nothing of it reached the weights. In "
            f"a new run directory {' or '.join(tries)}; or go on in this one, from its last checkpoint, with --set "
            f"{policy}"
        )

    def state(self) -> Loaded:
        """Return everything needed to resume, as named tensors and plain values."""
        done = {f"records:{name}": tensor for name, tensor in self.records.tensors().items()}
        done |= {f"learner:{name}": tensor for name, tensor in self.learner.tensors().items()}
        return self.tensors() | done, {
            "step": self.step,
            "total": self.total,
            "scaler": self.updates.scaler.state_dict(),
            "health": self.updates.health.state(),
            **({"best": self.best.state()} if self.stopping else {}),
        }

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return weights and optimizer state."""
        module = self.learner.module
        tensors = {f"module:{name}": tensor for name, tensor in module.state_dict().items()}
        optimizer = optimizer_tensors(module, self.updates.optimizer)
        averaged = {} if self.average is None else self.average.state_dict()
        tensors |= {f"average:{name}": tensor for name, tensor in averaged.items()}
        tensors |= {f"best:{name}": tensor for name, tensor in self.best.weights.items()}
        return tensors | {f"optimizer:{name}": tensor for name, tensor in optimizer.items()}

    def restore(self) -> None:
        """Resume from the newest checkpoint; without one, all processes start from rank 0's weights."""
        found = self.saver.load_newest()
        if found is not None:
            self.adopt(*found, source=self.saver.name)
            return
        if self.interrupted is not None:
            self.continue_from(self.interrupted())
        self.copy_state_from_rank_zero()

    def continue_from(self, interrupted: Interrupted) -> None:
        """Load weights, optimizer and scaler, at the step where its epochs end on the current data."""
        tensors, state = interrupted.state
        module = self.learner.module
        load_module(module, _section(tensors, "module"), "the interrupted training")
        restore_optimizer(module, self.updates.optimizer, _section(tensors, "optimizer"))
        self.restore_average(tensors, "the interrupted training")
        self.updates.scaler.load_state_dict(state["scaler"])
        self.step = interrupted.epochs * len(self.batches)

    def copy_state_from_rank_zero(self) -> None:
        """Copy rank 0's weights and buffers to every process: batch-norm statistics are those of its images."""
        if self.world.size > 1:
            self.world.check_same({"training step": self.step})
            found = self.world.tensors_from_rank_zero(self.state)
            assert found is not None
            self.adopt(*found, source="the first process's state")

    def adopt(self, tensors: Tensors, state: dict[str, Any], source: FilePath | str) -> None:
        """Load the result of `state`; `source` names it in messages."""
        parts = {kind: _section(tensors, kind) for kind in ("module", "optimizer", "records", "learner")}
        load_module(self.learner.module, parts["module"], source)
        restore_optimizer(self.learner.module, self.updates.optimizer, parts["optimizer"])
        self.restore_average(tensors, source)
        self.records = LossRecords.from_tensors(parts["records"])
        try:
            self.learner.restore(parts["learner"])
            self.restore_position(state)
            if self.stopping is not None:
                self.best = BestEpoch.from_state(state["best"], _section(tensors, "best"))
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RuntimeError) as error:
            raise RunError(
                f"{source} holds no state of this training ({type(error).__name__}: {error}): "
                "delete it to train from the start, or start a new run"
            ) from None

    def restore_average(self, tensors: Tensors, source: FilePath | str) -> None:
        if self.average is not None:
            load_module(self.average, _section(tensors, "average"), source)

    def take_average(self) -> None:
        """Replace the last weights by their moving average, if there is one."""
        if self.average is not None:
            load_module(self.learner.module, dict(self.average.module.state_dict()), "the moving average")

    def take_best(self) -> None:
        """Replace the last weights by those of the best epoch, if one was selected."""
        if self.stopping is not None:
            self.records.ended = (self.best.seen, self.best.epoch or self.best.seen)
            if self.best.weights:
                load_module(self.learner.module, dict(self.best.weights), "the best epoch")

    def restore_position(self, state: Mapping[str, Any]) -> None:
        self.step = int(state["step"])
        if not 0 <= self.step <= self.total or state["total"] != self.total:
            raise ValueError(f"step {self.step} of {state['total']}, where there are {self.total}")
        if self.records.num_groups != self.learner.num_groups:
            raise ValueError(f"records of {self.records.num_groups} groups, where there are {self.learner.num_groups}")
        self.updates.scaler.load_state_dict(state["scaler"])
        self.updates.health.restore(state["health"])


def _section(tensors: dict[str, torch.Tensor], kind: str) -> dict[str, torch.Tensor]:
    prefix = f"{kind}:"
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
