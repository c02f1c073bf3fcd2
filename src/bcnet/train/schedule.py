"""Learning rate as a pure function of the step.

Notation: step `t` from 0, `s` steps per epoch, `T = s * epochs` steps in total, `w = round(s * warmup_epochs)` warm-up
steps, epoch `e = t // s`.

    warm-up       eta(t) = lr * (t + 1) / (w + 1)                                         t < w
    cosine        eta(t) = final + (lr - final) * (1 + cos(pi * (t - w) / (T - 1 - w))) / 2
    step          eta(t) = lr * factor ^ #{milestones <= e}
    exponential   eta(t) = lr * factor ^ floor(e / every_epochs)

The cosine is exactly `lr` at step `w` and `final` at step `T - 1`.
"""

from __future__ import annotations

import math

from bcnet.train.recipe import Cosine, Recipe, Steps


def learning_rate(recipe: Recipe, step: int, steps_per_epoch: int) -> float:
    """Return the learning rate of step `step`, in `[0, steps_per_epoch * epochs)`."""
    warmup = round(steps_per_epoch * recipe.warmup_epochs)
    if step < warmup:
        return recipe.lr * (step + 1) / (warmup + 1)
    epoch = step // steps_per_epoch
    schedule = recipe.schedule
    if isinstance(schedule, Cosine):
        length = max(1, steps_per_epoch * recipe.epochs - 1 - warmup)
        share = (1 + math.cos(math.pi * min(1.0, (step - warmup) / length))) / 2
        return schedule.final_lr + (recipe.lr - schedule.final_lr) * share
    if isinstance(schedule, Steps):
        reached = sum(milestone <= epoch for milestone in schedule.milestones)
        return float(recipe.lr * schedule.factor**reached)
    return float(recipe.lr * schedule.factor ** (epoch // schedule.every_epochs))
