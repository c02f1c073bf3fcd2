"""Trial: does the model's own code run at other widths?

Numbers of channels that a forward method has stored cannot be seen in its graph. Narrow paths are therefore run,
on tensors that have shapes but no data, in train and in eval mode (both sides have the same shapes).
"""

from __future__ import annotations

import copy
import traceback
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from bcnet.space.layout import Side
from bcnet.space.narrowing import Narrowing
from bcnet.space.space import Widths, WidthSpace
from bcnet.space.symbols import Reason


def breaking_groups(model: nn.Module, example: torch.Tensor, space: WidthSpace) -> dict[int, Reason]:
    """The groups that break the model when they are narrow, with the error each gives; empty where all is well."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        fakes: dict[int, Any] = {id(t): _fake(mode, t) for t in [*model.parameters(), *model.buffers()]}
        fake_model = copy.deepcopy(model, fakes)
        trial = _Trial(fake_model, mode.from_tensor(example), space)
        if all(trial.error(widths) is None for widths in _narrow_widths(space)):
            return {}
        return trial.search(_narrow_widths(space))


def _fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    fake = mode.from_tensor(tensor.detach())
    return nn.Parameter(fake, requires_grad=False) if isinstance(tensor, nn.Parameter) else fake


def _narrow_widths(space: WidthSpace) -> list[Widths]:
    """The narrowest channel counts, and odd ones in between, different from group to group."""
    smallest = tuple(group.unit for group in space.groups)
    mixed = tuple(max(1, (g.max_width // g.unit) * (3 + i % 5) // 9) * g.unit for i, g in enumerate(space.groups))
    return [smallest, mixed]


class _Trial:
    def __init__(self, model: nn.Module, example: torch.Tensor, space: WidthSpace) -> None:
        self._model, self._example, self._space = model, example, space
        self._narrowing = Narrowing(model, space.layouts)
        self._shapes = {training: _shapes(self._run(space.full, training)) for training in (True, False)}

    def _run(self, widths: Widths, training: bool) -> Any:
        with self._narrowing.applied(widths, Side.LEFT):
            return self._model.train(training)(self._example)

    def error(self, widths: Widths) -> Reason | None:
        """What goes wrong at `widths` in either mode, or None."""
        for training in (True, False):
            try:
                shapes = _shapes(self._run(widths, training))
            except Exception as error:
                return _reason(error)
            if shapes != self._shapes[training]:
                return Reason(f"the shape of the output changes: {shapes} instead of {self._shapes[training]}")
        return None

    def search(self, targets: list[Widths]) -> dict[int, Reason]:
        """Narrow one group after the other, and hold those that break what ran before."""
        held: dict[int, Reason] = {}
        reached = [list(self._space.full) for _ in targets]
        for group in range(len(self._space.groups)):
            for widths, target in zip(reached, targets, strict=True):
                before, widths[group] = widths[group], target[group]
                error = None if group in held else self.error(tuple(widths))
                if error is not None:
                    held[group] = error
                if group in held:
                    widths[group] = before
            if group in held:
                for widths in reached:
                    widths[group] = self._space.full[group]
        return held


def _shapes(output: Any) -> list[tuple[int, ...]]:
    return [tuple(t.shape) for t in torch.utils._pytree.tree_leaves(output) if isinstance(t, torch.Tensor)]


def _reason(error: Exception) -> Reason:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/torch/" not in f.filename and f.line]
    frame = frames[-1] if frames else None
    where = f"{frame.filename}, line {frame.lineno}" if frame else ""
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return Reason(f"the model's own code breaks at other widths: {first}", "", where)
