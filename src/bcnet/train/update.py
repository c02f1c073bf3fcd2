"""Weight updates from gradients: good steps change the weights, failed ones do not; and moving averages of weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from bcnet.machine.devices import Precision
from bcnet.train.guard import Guard, look_every
from bcnet.train.health import Health, Verdict
from bcnet.train.optimizer import make_optimizer
from bcnet.train.recipe import Recipe
from bcnet.train.step import Term


@dataclass(frozen=True)
class Measured:
    """A step with computed gradients: losses `(terms,)` and the gradient's norm `()`, still on the device."""

    step: int
    terms: tuple[Term, ...]
    losses: torch.Tensor
    norm: torch.Tensor
    classes: int


@dataclass(frozen=True)
class Seen:
    """A measured step after the host has read it."""

    step: int
    terms: tuple[Term, ...]
    losses: tuple[float, ...]
    norm: float
    verdict: Verdict


class Updates:
    """Optimizer of a training, its gradient scaler, and the check of every step.

    Calls for each step: `begin`, `backward` for gradients, `measure`, `finish`.
    """

    def __init__(self, module: nn.Module, recipe: Recipe, precision: Precision) -> None:
        device = next(module.parameters()).device
        self._module = module
        self._recipe = recipe
        self.optimizer = make_optimizer(module, recipe)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
        self.health = Health(recipe)
        self._guard = Guard(module, self.optimizer)
        self._look_every = look_every(device, scaled=self.scaler.is_enabled())
        self._unseen: list[Measured] = []
        self._bad = torch.zeros((), dtype=torch.bool, device=device)  # set if the newest unchecked step failed

    def begin(self) -> None:
        """Prepare for the gradients of a step."""
        self._guard.remember()
        self.optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of a loss."""
        torch.autograd.backward(self.scaler.scale(loss))

    def measure(self, step: int, terms: tuple[Term, ...], losses: torch.Tensor, classes: int) -> None:
        """Record the losses `(terms,)` and the norm of the complete gradients."""
        if self.scaler.is_enabled():  # the norm is in units of the unscaled loss
            self.scaler.unscale_(self.optimizer)
        norm = nn.utils.get_total_norm([p.grad for p in self._module.parameters() if p.grad is not None])
        self._unseen.append(Measured(step, terms, losses, norm, classes))

    def finish(self, lr: float, *, look: bool) -> list[Seen]:
        """Update the weights unless the step failed; return the checked steps (all unchecked ones if `look` is set).

        If one of them must end the run (see `offender`), the weights are those before it.
        """
        newest = self._unseen[-1]
        # The first update creates the momentum; before it there is no state to restore after a failed step.
        if look or len(self._unseen) >= self._look_every or not self.optimizer.state:
            seen = self._read_unseen()
            if seen[-1].verdict.bad or self.offender(seen):
                self._guard.restore()
                self.scaler.update()  # it needs every step whose gradients it unscaled
            else:
                self._update(lr, newest.norm)
            return seen
        # The host does not wait: the device decides by a multiplier whether the step counts.
        bad = ~(newest.losses.isfinite().all() & newest.norm.isfinite())
        self._bad = bad | self._bad if self._recipe.on_bad_step == "stop" else bad
        with self._guard.undone_where(self._bad):
            self._update(lr, newest.norm)
        return []

    def offender(self, seen: Sequence[Seen]) -> Seen | None:
        """Return the step that must end the run: the first failed one (all later ones are undone), or the newest."""
        first_bad = next((s for s in seen if s.verdict.bad and self._recipe.on_bad_step == "stop"), None)
        return first_bad or next((s for s in seen[-1:] if s.verdict.stop), None)

    def _read_unseen(self) -> list[Seen]:
        rows = torch.stack([torch.cat([m.losses, m.norm[None]]) for m in self._unseen]).tolist()
        seen = []
        for measured, (*losses, norm) in zip(self._unseen, rows, strict=True):
            # An fp16 gradient may overflow: the scaler skips that step and lowers its scale.
            checked = 0.0 if self.scaler.is_enabled() and self.scaler.get_scale() > 1 else norm
            verdict = self.health.check(measured.step, losses, checked, measured.classes)
            seen.append(Seen(measured.step, measured.terms, tuple(losses), norm, verdict))
        self._unseen.clear()
        self._bad = torch.zeros_like(self._bad)
        return seen

    def _update(self, lr: float, norm: torch.Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        if self._recipe.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self._module.parameters(), self._recipe.clip_norm, norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()


def moving_average(module: nn.Module, decay: float) -> AveragedModel:
    """Return a moving average of a module's weights and buffers that keeps `decay` of itself at each update.

    At first it keeps less, `(1 + n) / (10 + n)` after `n` updates, so that a training of a few hundred steps does not
    end near its start.
    """
    return AveragedModel(module, multi_avg_fn=_average_update(decay), use_buffers=True)


def _average_update(decay: float) -> Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]:
    @torch.no_grad()
    def update(averages: Sequence[Tensor], weights: Sequence[Tensor], updates: Any) -> None:
        if not averages[0].is_floating_point():  # counts of batches
            for average, now in zip(averages, weights, strict=True):
                average.copy_(now)
            return
        kept = torch.clamp((1 + updates) / (10 + updates), max=decay)
        for average, now in zip(averages, weights, strict=True):
            average.lerp_(now, (1 - kept).to(average.dtype))

    return update
