"""The stage that asks how far the scores of a search can be believed.

Notation: `s_1, s_2` the scores of a candidate on two halves of images that took no part in the search, `r` their
correlation over the candidates. What both halves share is the widths, what they do not is noise; for all images

    reliability = 2 r / (1 + r)        (Spearman and Brown),

the share of the scores' variance that widths explain. The same of the means of LEFT and RIGHT is what widths explain
whichever channels are kept: in a supernet that has learnt little, scores repeat themselves on other images and yet say
more of single channels than of widths. Where the smaller of both is near zero, or where no candidate does better than
who always names the most frequent class, a search has chosen by luck.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bcnet.nests import joined, tensors
from bcnet.progress.forecast import Planned
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.searchers import Candidate, SupernetEvaluator, accuracy_interval
from bcnet.space import Widths
from bcnet.stages.base import Context, Stage
from bcnet.stages.search import EvolutionStage, Searched, scoring_passes, usual_macs

FloatArray = npt.NDArray[np.float64]

CANDIDATES = 32
NOTHING, LITTLE = 0.3, 0.6  # reliabilities below which scores say nothing, or little


@dataclass(frozen=True)
class Reliability:
    """How far scores can be believed.

    `candidates` were scored on `images` each. `reliability` is that of the two halves, `sides` the correlation of LEFT
    and RIGHT, None where the supernet has one side. `spread` is the standard deviation that widths explain and `noise`
    that of what they do not, in units of the score. `chance` is the score of always naming the most frequent class,
    `beats_chance` whether a candidate is better, both None where a score is no accuracy.
    """

    candidates: int
    images: int
    reliability: float
    sides: float | None
    spread: float
    noise: float
    chance: float | None = None
    beats_chance: bool | None = None

    @property
    def verdict(self) -> str:
        """nothing, little or much: what the scores say of widths."""
        believed = self.reliability if self.sides is None else min(self.reliability, spearman_brown(self.sides))
        if self.beats_chance is False or believed < NOTHING:
            return "nothing"
        return "little" if believed < LITTLE else "much"

    def __str__(self) -> str:
        """A sentence or two for people."""
        sides = "" if self.sides is None else f", LEFT and RIGHT correlate at {self.sides:.2f}"
        facts = (
            f"over {self.candidates} candidates and {self.images:,} fresh images, widths explain "
            f"{self.reliability:.0%} of the scores' variance{sides}"
        )
        if self.beats_chance is False:
            facts = f"no candidate is better than the most frequent class, {self.chance:.2f} %; {facts}"
        advice = "train the supernet for longer, or take widths that need no search (bcnet baseline balanced)"
        return {
            "nothing": f"The scores say nothing about widths here: {facts}. Either {advice}.",
            "little": f"The scores say little about widths here: {facts}. A longer training of the supernet may help.",
            "much": f"The scores can be believed: {facts}.",
        }[self.verdict]


def reliability_of(by_side: FloatArray, labels: FloatArray | None = None) -> Reliability:
    """The reliability of scores of single images, `(candidates, sides, images)`.

    `labels` `(images,)` where a score is the accuracy in percent.
    """
    per_image = by_side.mean(axis=1)
    halves = per_image[:, ::2].mean(axis=1), per_image[:, 1::2].mean(axis=1)
    reliability = spearman_brown(_correlation(*halves))
    variance = float(per_image.mean(axis=1).var())
    sides = _correlation(*by_side.mean(axis=2).T) if by_side.shape[1] == 2 else None
    found = Reliability(
        candidates=len(by_side),
        images=by_side.shape[2],
        reliability=reliability,
        sides=sides,
        spread=float(np.sqrt(reliability * variance)),
        noise=float(np.sqrt((1 - reliability) * variance)),
    )
    if labels is None:
        return found
    chance = 100.0 * float(np.unique(labels, return_counts=True)[1].max()) / len(labels)
    best = per_image[int(np.argmax(halves[0]))][1::2]  # chosen on one half, judged on the other
    return replace(found, chance=chance, beats_chance=accuracy_interval(best)[0] > chance)


def spearman_brown(correlation: float) -> float:
    """The reliability of a mean of two parts that correlate so; 0 where they do not agree at all."""
    return max(0.0, 2 * correlation / (1 + correlation)) if correlation > -1 else 0.0


def _correlation(one: FloatArray, other: FloatArray) -> float:
    """Pearson's; 0 where one of them is constant."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


class ReliabilityStage(Stage):
    """Comes to how far the scores of paths can be believed; to None where they are the user's own function."""

    name: ClassVar[str] = "reliability"
    file: ClassVar[str] = "reliability.json"
    needs: ClassVar[tuple[str, ...]] = ("evolution",)
    kind: ClassVar[str] = "scoring"

    def applies(self, settings: Settings) -> bool:
        """Where paths are scored as they are."""
        return settings.has_supernet and not settings.tunes

    def reads(self, settings: Settings) -> frozenset[str]:
        """All that the search depends on."""
        return EvolutionStage().reads(settings)

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """Some candidates, on fresh images."""
        work = scoring_passes(settings, workload, 0) * usual_macs(workload)
        return Planned(self.name, CANDIDATES, "candidates", work, kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Score some of the candidates on both halves of the fresh images."""
        searched: Searched = context.output("evolution")
        evaluator = searched.scorer.again
        some = _some(searched, context.settings.seed)
        if not isinstance(evaluator, SupernetEvaluator) or len(some) < 3:
            context.directory.write(self.file, {"reliability": None})
            return

        def scores(candidate: Candidate) -> list[list[float]]:
            found: list[list[float]] = evaluator.by_side(candidate.widths).tolist()
            return found

        with context.working(self.name, len(some), "candidates") as advance:
            by_side = np.array(list(context.world.map(scores, some)))
            advance(len(some), "")
        accuracy = evaluator.metric == "accuracy"
        labels = None
        if accuracy:
            found = joined([labels for _, labels in context.workload.fresh])
            labels = tensors(found)[0].cpu().numpy()
        reliability = reliability_of(by_side, labels)
        context.directory.write(self.file, {"reliability": asdict(reliability)})
        context.reporter.note(str(reliability))

    def load(self, context: Context) -> Reliability | None:
        """What was found."""
        values: dict[str, Any] | None = context.directory.read(self.file)["reliability"]
        return None if values is None else Reliability(**values)


def _some(searched: Searched, seed: int) -> list[Candidate]:
    """Candidates within the budget, drawn without regard to their scores."""
    found = searched.found
    inside: dict[Widths, Candidate] = {
        c.widths: c for c in found.evaluations if c.complete and found.budget.admits(c.cost)
    }
    rng = np.random.default_rng([seed, 7])
    chosen = sorted(rng.permutation(len(inside))[:CANDIDATES].tolist())
    return [list(inside.values())[number] for number in chosen]
