"""A bad step run again, watched: which path, which module, which parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bcnet.data.transfer import moved
from bcnet.errors import RunError
from bcnet.nests import channels_last
from bcnet.train.failed_step import FailedStep
from bcnet.train.learner import Learner
from bcnet.train.objective import Objective
from bcnet.train.randomness import own_global_randomness
from bcnet.train.step import Pass, Path, accumulate_gradients


@dataclass
class PathReplay:
    """One path of the step: its loss and its modules' outputs, in the order in which they ran.

    `broken` is the first module whose output holds something that is no finite number, `share` how much of it, and
    `given` the largest absolute value that went in; `largest` is the module with the largest finite output, `peak`.
    """

    path: Path
    loss: float = math.nan
    broken: str | None = None
    share: float = 0.0
    given: float = 0.0
    largest: str = ""
    peak: float = 0.0

    def note(self, name: str, given: tuple[Any, ...], output: Any) -> None:
        """Look at what module `name` gave for what it was given."""
        for tensor in _tensors(output):
            finite = tensor.isfinite()
            if self.broken is None and not finite.all():
                self.broken = name
                self.share = 1 - float(finite.float().mean())
                self.given = max((_peak(t) for t in _tensors(given)), default=0.0)
            peak = _peak(tensor[finite])
            if peak > self.peak:
                self.largest = name
                self.peak = peak


@dataclass(frozen=True)
class Replay:
    """What a replayed step showed.

    `gradients` is the L2 norm of the gradient of every module with parameters of its own, `norm` that of all;
    `weights` names the parameters and buffers that were no finite numbers before the step, `heaviest` is the one with
    the largest absolute value and that value. `same` says that losses and norm are the run's to the bit.
    """

    failed_step: FailedStep
    paths: tuple[PathReplay, ...]
    gradients: dict[str, float]
    norm: float
    weights: tuple[str, ...]
    heaviest: tuple[str, float]
    same: bool


def replay(learner: Learner, failed_step: FailedStep) -> Replay:
    """Run the step again on `learner`, whose module gets the weights before the step.

    Raises:
        RunError: the weights do not fit the module.
    """
    module = learner.module
    device = next(module.parameters()).device
    x, y = (moved(failed_step.batch(part), device) for part in ("x", "y"))
    if failed_step.channels_last:
        x = channels_last(x)
    taught = failed_step.tensors.get("batch:taught")
    taught = taught if taught is None else taught.to(device)
    try:
        module.load_state_dict(
            {n.removeprefix("module:"): t for n, t in failed_step.tensors.items() if n.startswith("module:")}
        )
    except RuntimeError as error:
        raise RunError(f"the step saved does not fit this model: {' '.join(str(error).split())}") from None
    peaks = {name: _peak(tensor) for name, tensor in module.named_parameters()}
    heaviest = max(peaks.items(), key=lambda item: item[1])
    weights = tuple(name for name, tensor in module.state_dict().items() if not tensor.isfinite().all())
    scaler = torch.amp.GradScaler(device.type, enabled=failed_step.recipe.precision == "fp16")
    scaler.load_state_dict(dict(failed_step.scaler))
    objective = Objective(learner, failed_step.recipe, failed_step.recipe.precision, x, y, taught)
    watch = _Watch(module, objective)
    module.train()
    module.zero_grad(set_to_none=True)
    with own_global_randomness(device), watch.listening():
        torch.manual_seed(failed_step.noise_seed)
        losses = accumulate_gradients(
            failed_step.terms, watch, lambda loss: torch.autograd.backward(scaler.scale(loss)), learner.passes
        )
    gradients, norm = _gradients(module, scaler.get_scale() if scaler.is_enabled() else 1.0)
    # as text, in which not-a-number equals itself
    same = repr([*losses.tolist(), norm]) == repr([*failed_step.losses, failed_step.norm])
    return Replay(failed_step, tuple(watch.paths), gradients, norm, weights, heaviest, same)


class _Watch:
    """An objective that writes down what every module gives on every path."""

    def __init__(self, module: nn.Module, objective: Objective) -> None:
        self._module = module
        self._objective = objective
        self.paths: list[PathReplay] = []
        self._running: list[PathReplay] = []  # those of the pass at hand, which share their modules' outputs

    def __call__(self, paths: Pass) -> list[torch.Tensor]:
        self._running = [PathReplay(path) for path in paths]
        self.paths += self._running
        losses = self._objective(paths)
        for path, loss in zip(self._running, losses, strict=True):
            path.loss = float(loss.detach())
        return losses

    @contextmanager
    def listening(self) -> Iterator[None]:
        handles = [part.register_forward_hook(self._hear(name)) for name, part in self._module.named_modules() if name]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hear(self, name: str) -> Any:
        def hear(part: nn.Module, given: tuple[Any, ...], output: Any) -> None:
            for seen in self._running:
                seen.note(name, given, output)

        return hear


def _tensors(value: Any) -> list[torch.Tensor]:
    values = value if isinstance(value, (tuple, list)) else [value]
    return [v.detach() for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()]


def _peak(tensor: torch.Tensor) -> float:
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0


def _gradients(module: nn.Module, scale: float) -> tuple[dict[str, float], float]:
    found: dict[str, list[torch.Tensor]] = {}
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            found.setdefault(name.rpartition(".")[0], []).append(parameter.grad.div(scale))
    norms = {owner: float(nn.utils.get_total_norm(parts)) for owner, parts in found.items()}
    return norms, float(nn.utils.get_total_norm([part for parts in found.values() for part in parts]))
