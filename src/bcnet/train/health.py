"""Detection of failed training steps: the rule on plain numbers, and its memory.

Notation: `L` is the mean loss of the step's terms, `n` the L2 norm of its gradient before clipping, `m` the median of
`L` over the last `WINDOW` good steps, `C` the number of classes (`ln C` is the loss of guessing), `f` the recipe's
`explosion_factor`.

    bad          L or n is not finite: the step must not change the weights
    exploding    L > f * max(m, ln C) in each of `PATIENCE` consecutive steps: training diverged

A bad step ends the run. With `on_bad_step: skip` it is skipped and counted, until `max_bad_steps` in a row are bad. All
paths of a step are skipped together, so that every channel of a group is trained equally often.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bcnet.train.recipe import Recipe

WINDOW = 100
PATIENCE = 10


@dataclass(frozen=True)
class Verdict:
    """Verdict on a step: `fault` describes the problem, `bad` forbids the update, `stop` ends the run."""

    fault: str = ""
    bad: bool = False
    stop: bool = False


class Health:
    """Memory of the checks, part of the training state.

    `skipped` counts the skipped steps.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._usual: deque[float] = deque(maxlen=WINDOW)
        self._high = 0
        self.skipped: list[int] = []

    def check(self, step: int, losses: Sequence[float], norm: float, classes: int) -> Verdict:
        """Check a step and remember its loss.

        `losses` are those of the step's terms, `norm` that of the whole gradient.
        """
        loss = math.fsum(losses) / len(losses) if all(map(math.isfinite, losses)) else math.nan
        if not math.isfinite(loss):
            return self._fault(step, f"a loss must be a finite number; got {', '.join(f'{x:.4g}' for x in losses)}")
        if not math.isfinite(norm):
            return self._fault(step, f"the norm of the gradient must be a finite number; got {norm} at loss {loss:.4g}")
        bound = self._loss_bound(classes)
        self._high = self._high + 1 if loss > bound else 0
        self._usual.append(loss)
        if self._high >= PATIENCE:
            limit = f"explosion_factor ({self._recipe.explosion_factor:g}) times its usual size or that of guessing"
            fault = f"a loss must not stay above {limit}, {bound:.4g}; got {loss:.4g}, and {PATIENCE - 1} before it"
            return Verdict(fault, stop=True)
        return Verdict()

    def _fault(self, step: int, fault: str) -> Verdict:
        row = 1
        while row <= len(self.skipped) and self.skipped[-row] == step - row:
            row += 1
        self.skipped.append(step)
        if self._recipe.on_bad_step == "stop":
            return Verdict(fault, bad=True, stop=True)
        if row > self._recipe.max_bad_steps:
            fault += f": {row} bad steps in a row, and max_bad_steps is {self._recipe.max_bad_steps}"
        return Verdict(fault, bad=True, stop=row > self._recipe.max_bad_steps)

    def _loss_bound(self, classes: int) -> float:
        if self._recipe.explosion_factor is None:
            return math.inf
        usual = median(self._usual) if self._usual else 0.0
        return self._recipe.explosion_factor * max(usual, math.log(classes))

    def state(self) -> dict[str, Any]:
        """Return the memory as JSON values."""
        return {"usual": list(self._usual), "high": self._high, "skipped": self.skipped}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`.

        Raises:
            KeyError, TypeError, ValueError: the data have another form.
        """
        self._usual = deque(map(float, state["usual"]), maxlen=WINDOW)
        self._high = int(state["high"])
        self.skipped = [int(step) for step in state["skipped"]]
