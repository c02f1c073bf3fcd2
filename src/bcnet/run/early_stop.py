"""Whether the candidates of a run are raced, and what people are told of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bcnet.errors import RecipeError
from bcnet.run.settings import Settings
from bcnet.searchers import Race
from bcnet.searchers.racing import LEAST_BATCHES


def race_of(settings: Settings, batches: int) -> Race | None:
    """How candidates are raced on so many validation batches, None where all are scored on all of them.

    A score of the user's own is left alone: nothing says that its values on batches can be compared.

    Raises:
        RecipeError: the settings ask for a race that cannot be.
    """
    if settings.early_stop == "off" or settings.widths is not None:
        return None
    own = settings.metric == "own"
    few = batches < LEAST_BATCHES
    if settings.early_stop == "auto" and (own or few or settings.tune_steps):
        return None
    if settings.tune_steps:
        raise RecipeError(
            f"early_stop=on spares passes of the supernet, of which fine-tuned candidates have none; got tune_steps "
            f"{settings.tune_steps}: leave early_stop at auto or off, or tune_steps at 0"
        )
    if own:
        raise RecipeError(
            f"early_stop=on is for the scores accuracy and loss; got {settings.own_score or settings.task}, a score of "
            "your own, which is always asked for everything: leave early_stop at auto"
        )
    if few:
        raise RecipeError(
            f"early_stop=on needs at least {LEAST_BATCHES} batches of validation images; got {batches} of "
            f"{settings.score_batch_size:,} images or fewer: lower score_batch_size (--score-batch-size), or leave "
            "early_stop at auto"
        )
    return Race(level=settings.early_stop_level)


def candidates_text(found: Mapping[str, Any]) -> str:
    """How many candidates were scored, of the section "search" of `result.json`.

    Example: "400 candidates, 280 of them stopped early: 35 % of all batches".
    """
    text = f"{found['evaluations']:,} candidates"
    if not found["stopped"]:
        return text
    return f"{text}, {found['stopped']:,} of them stopped early: {100 * found['effort']:.0f} % of all batches"
