"""Reliability of a search's scores, as stored and reported. Importing this module loads no torch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat, NonNegativeInt, computed_field

from bcnet.measurement import Count

_HARDLY_SMALLER = 0.99  # of the best candidate's parameters: a smaller tied one is mentioned below this
NOTHING = 0.3  # reliability below which scores carry no information
LITTLE = 0.6  # below which they carry little


class Reliability(BaseModel):
    """Reliability of candidate scores.

    `candidates` were scored on `images` each. `reliability` is that of two halves of the images; `sides` is the
    correlation of LEFT and RIGHT, None with one side. `spread` is the standard deviation explained by widths and
    `noise` the rest, in units of the score. `chance` is the score of always predicting the most frequent class (for
    losses: of predicting class frequencies). `beats_chance` says whether some candidate is better, given the spread
    over its images. Both are None for other scores. `r2` is the R² of a model of the widths on candidates left out, at
    least 0; None for paths of a supernet or too few networks. `metric` is the score's. `of_networks` means that
    candidates are separately trained networks, scored on held-out images, not paths scored on fresh ones. `tied` counts
    the candidates that the scores cannot distinguish from the best one, including itself. `smallest` is the tied
    candidate with the fewest parameters, and `smallest_params` its share of the best one's parameters; None without
    `r2`.
    """

    model_config = ConfigDict(frozen=True)

    candidates: NonNegativeInt
    images: NonNegativeInt
    reliability: FiniteFloat
    sides: FiniteFloat | None = None
    spread: FiniteFloat
    noise: FiniteFloat
    chance: FiniteFloat | None = None
    beats_chance: bool | None = None
    r2: FiniteFloat | None = None
    metric: str = "accuracy"
    of_networks: bool = False
    tied: NonNegativeInt | None = None
    smallest: tuple[Count, ...] | None = None
    smallest_params: FiniteFloat | None = None

    def with_values(self, **values: Any) -> Reliability:
        """Return a copy with changed fields."""
        return self.model_copy(update=values)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> Literal["nothing", "little", "much"]:
        """Information in the scores: "nothing", "little" or "much"."""
        believed = self.reliability if self.sides is None else min(self.reliability, spearman_brown(self.sides))
        if self.r2 is not None:
            believed = min(believed, self.r2)
        if self.beats_chance is False or believed < NOTHING:
            return "nothing"
        return "little" if believed < LITTLE else "much"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def text(self) -> str:
        """One or two sentences for people."""
        sides = "" if self.sides is None else f", LEFT and RIGHT correlate at {self.sides:.2f}"
        r2 = "" if self.r2 is None else f", and a model of the widths {self.r2:.0%} of it on candidates left out"
        kind = "held-out" if self.of_networks else "fresh"
        facts = (
            f"over {self.candidates} candidates and {self.images:,} {kind} images, widths explain "
            f"{self.reliability:.0%} of the scores' variance{sides}{r2}"
        )
        if self.beats_chance is False:
            facts = f"no candidate is surely better than {self._chance_text}; {facts}"
        longer = "train the supernet for longer"
        if self.of_networks:
            longer = "train candidates for longer (a larger --epochs or --effort)"
        free = "widths that need no search (--method balanced)"
        source = "short trainings" if self.of_networks else "shared weights"
        unsaid = f"This does not show that {source} rank widths as full trainings do: compare with {free}."
        return {
            "nothing": f"The scores say nothing about widths here: {facts}. Either {longer}, or take {free}.",
            "little": f"The scores say little about widths here: {facts}. It may help to {longer}.{self._tied_text}",
            "much": f"The scores are repeatable: {facts}. {unsaid}{self._tied_text}",
        }[self.verdict]

    def __str__(self) -> str:
        return self.text

    @property
    def _tied_text(self) -> str:
        """Describe the candidates that a user may choose as well."""
        if self.smallest is None or self.smallest_params is None or self.smallest_params > _HARDLY_SMALLER:
            return ""
        widths = ",".join(map(str, self.smallest))
        return (
            f" {self.tied} candidates are tied with the best within this precision; the smallest of them has "
            f"{1 - self.smallest_params:.0%} fewer parameters (--method given:values={widths})."
        )

    @property
    def _chance_text(self) -> str:
        if self.metric == "loss":
            return f"knowing how frequent each class is, {self.chance:.3f}"
        return f"the most frequent class, {self.chance:.2f} %"


def spearman_brown(correlation: float) -> float:
    """Return the reliability of the mean of two parts with this correlation; 0 if it is not positive."""
    return max(0.0, 2 * correlation / (1 + correlation)) if correlation > -1 else 0.0
