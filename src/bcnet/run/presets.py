"""Presets: settings under one name. `paper` is the search as the paper has it, where our default differs from it.

What each difference is, why, and what it does to a search, docs/differences.md says. What no setting can say is there
too: the prior of the paper has nearly all of its probability on one width of each group and is softened here, and the
best of the last generation is the best of all that were evaluated, since rank and crowding never give it up. Of the
baseline random it is the best network's own training that goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from bcnet.errors import RecipeError

PresetName = Literal["paper"]
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "paper": MappingProxyType(
            {
                "keep_records": 100,
                "records_since": 0.0,
                "tightened": False,
                "first_generation": "prior",
                "macs_from": 0.0,
                "tournament": "rank",
                "rescored": 1,
            }
        )
    }
)


def with_preset(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with those of a preset.

    Raises:
        RecipeError: no such preset, or settings that say otherwise.
    """
    if name not in PRESETS:
        raise RecipeError(f"a preset is one of {', '.join(PRESETS)}; got {name!r}")
    preset = PRESETS[name]
    if settings.get("baseline") == "random":
        preset = {**preset, "random_continued": True}
    clash = [key for key, value in preset.items() if settings.get(key) is not None and settings[key] != value]
    if clash:
        raise RecipeError(
            f"preset={name!r} has {clash[0]} {preset[clash[0]]!r}; got {settings[clash[0]]!r} beside it: leave one of "
            "them out"
        )
    return {**settings, **preset}
