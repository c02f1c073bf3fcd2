"""How much to spend on a search, said in trainings of the original: `effort`, and the settings that it comes to.

A search that is not told how to search is one of a medium effort (`docs/how_it_works.md` says why).

Candidates are networks that are trained for a share of the final epochs, and a model of their scores proposes them.
From trained weights a twentieth of the epochs tells them apart. From scratch it takes a tenth to three tenths, and is
biased (`docs/score_model.md`): the best of them that differ, the balanced and the Uniform widths among them, are then
trained for as long as the final networks, which decides. A training of a network of `r` times the multiply-adds takes
about `sqrt(r)` of the original's time, since what it reads and writes goes as its widths do; so `n` networks of `e`
epochs and `k` of `E` epochs, on a share `s` of the images, cost, in trainings of the original of `E` epochs,

    (n e / E + k) s sqrt(r).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from bcnet.errors import RecipeError
from bcnet.run.settings import in_sections
from bcnet.space import Budget, WidthSpace
from bcnet.train import Recipe

EffortName = Literal["small", "medium", "large"]
FEWEST = 8  # networks: what a model of the scores learns anything from
DECIDED = ("scorer", "searcher", "random_networks", "random_epochs", "rescored", "finalist_epochs")
"""Settings that an effort comes to."""
USUAL: EffortName = "medium"
_SUPERNETS = "supernet."  # begins the names of changes to the supernet's recipe
_OF_ANY_SEARCH = {
    *("score", "own_score", "score_batch_size", "reach", "search_seed"),
    *("supernet", "validation_fraction", "fresh_fraction", "balance_exponent"),
}
SAYS_HOW = (in_sections("supernet", "prior", "scoring", "search", "finalists", "baseline") - _OF_ANY_SEARCH) | {
    *("supernet_width", "supernet_epochs", "preset", "score_of_widths"),
}
"""What says how to search, on a supernet unless it says otherwise: without any of these the effort is the usual one."""
NOT_BESIDE = SAYS_HOW - {"supernet_width", "score_of_widths"}
"""Of these, what an effort decides or has no use for; a wider space, and a score in place of trainings, it takes."""


@dataclass(frozen=True)
class Effort:
    """About so many `trainings` of the original.

    From scratch each candidate gets a `share` of a final one, and `finalists` are how many of the best get a whole one;
    of one alone there is nothing to tell apart. From trained weights all is spent on candidates.
    """

    trainings: float
    share: float
    finalists: int


_SHARE_OF_TUNING = 0.05  # of a final training, for candidates that start from trained weights

EFFORTS: Mapping[str, Effort] = MappingProxyType(
    {"small": Effort(1, 0.1, 1), "medium": Effort(3, 0.2, 3), "large": Effort(10, 0.3, 4)}
)


def says_how(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """Whether arguments of a search, with `changes` to its recipe, say how to search."""
    told = any(settings.get(name) is not None for name in SAYS_HOW)
    return told or settings.get("final_from") == "supernet" or any(key.startswith(_SUPERNETS) for key in changes)


def check_effort(name: str, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Refuse an effort that is none, or settings, and changes to the recipe, that it decides or has no use for.

    Raises:
        RecipeError: either.
    """
    if name not in EFFORTS:
        raise RecipeError(f"effort is one of {', '.join(EFFORTS)}; got {name!r}")
    clash = [setting for setting in sorted(NOT_BESIDE) if settings.get(setting) is not None]
    clash = clash or [key for key in changes if key.startswith(_SUPERNETS)]
    if clash:
        raise RecipeError(
            f"effort={name!r} decides how candidates are found and scored; got {', '.join(clash)} beside it: leave one "
            "of them out"
        )


def settings_of(
    name: str, space: WidthSpace, budget: Budget, final: Recipe, seen: float, *, from_scratch: bool
) -> dict[str, Any]:
    """The settings of a search of this effort under `budget`.

    A limit that can only be measured, as a latency that no model predicts yet, is counted as none. `seen` is the share
    of the training images that candidates are trained on, `from_scratch` how they start.

    Raises:
        BudgetError: the narrowest network of the space costs more.
    """
    effort = EFFORTS[name]
    share, finalists = (effort.share, effort.finalists) if from_scratch else (_SHARE_OF_TUNING, 1)
    epochs = max(1, round(share * final.epochs))
    whole = seen * math.sqrt(_macs_ratio(space, budget))  # what a whole training costs, in those of the original
    told_apart = finalists > 1 and epochs < final.epochs
    left = effort.trainings - (finalists * whole if told_apart else 0)
    networks = max(FEWEST, int(left / (whole * epochs / final.epochs)))
    values = ("trainings", "model", networks, epochs, finalists, final.epochs if told_apart else None)
    return dict(zip(DECIDED, values, strict=True))


def _macs_ratio(space: WidthSpace, budget: Budget) -> float:
    """Multiply-adds of the Uniform network, over the original's."""
    if not all(measure.countable for measure in budget.limits):
        return 1.0
    uniform: float = space.cost(space.uniform(budget)).macs / space.reference.macs
    return uniform
