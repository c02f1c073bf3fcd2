"""Stage that estimates the reliability of a search's scores.

Notation: `s_1, s_2` are the scores of a candidate on two halves of images not used in the search, and `r` is their
correlation over the candidates. The halves share the widths but not the noise. For all images,

    reliability = 2 r / (1 + r)        (Spearman and Brown),

the share of the scores' variance that widths explain. The same formula on the means of LEFT and RIGHT gives what widths
explain regardless of the kept channels: scores of a barely trained supernet repeat on other images but depend more on
single channels than on widths. If the smaller of both is near zero, or no candidate beats always predicting the most
frequent class, the search has chosen by luck. Otherwise scores are repeatable, which does not make them right: shared
weights and short trainings may rank widths differently from full trainings.

Candidates that are trained on their own have one network each, whose training luck both halves share, so halves agree
too well. The R² of a model of the widths on candidates left out is free of this. The smaller of the two counts. No
model is right, so the better of two is taken: the search's own, which is additive, and a random forest. On scores of
noise alone both are near 0 or below. Candidates whose scores differ from the best one's by less than the residual of
such a fit, the square root of (1 - R²) times the variance, are tied with it: the search cannot say which is better, and
a user may choose the smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bcnet.data import Batch
from bcnet.progress.forecast import Planned
from bcnet.pytree import concat_batches, tensors
from bcnet.run import names
from bcnet.run.reliability import Reliability, spearman_brown
from bcnet.run.score import trust_text
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.searchers import Candidate, SupernetEvaluator, accuracy_interval
from bcnet.searchers.score_model import ScoreModel
from bcnet.space import Widths, WidthSpace
from bcnet.stages.base import Context, Stage
from bcnet.stages.scores import NetworkScores
from bcnet.stages.search import Searched, read_for_search, scoring_passes, search_of, usual_macs

FloatArray = npt.NDArray[np.float64]

CANDIDATES = 32
_FEWEST = 3
_SURE = 3.18  # Student's t for four parts, 97.5 %
_TREES = 300
_MORE = 2  # a fit needs this many candidates per group, and as many again


def reliability_of(by_side: FloatArray, labels: npt.NDArray[np.int64] | None = None) -> Reliability:
    """Return the reliability of scores of single images, `(candidates, sides, images)`.

    `labels` `(images,)` are required if a score is the accuracy in percent.
    """
    per_image = by_side.mean(axis=1)
    found = _of_halves(per_image, by_side.shape[2]).with_values(
        sides=_correlation(*by_side.mean(axis=2).T) if by_side.shape[1] == 2 else None
    )
    if labels is None:
        return found
    chance = chance_of(labels, "accuracy")
    return found.with_values(chance=chance, beats_chance=accuracy_interval(_best_half(per_image))[0] > chance)


def reliability_in_parts(
    parts: FloatArray,
    images: int,
    *,
    metric: str = "own",
    labels: npt.NDArray[np.int64] | None = None,
    r2: float | None = None,
) -> Reliability:
    """Return the reliability of scores on parts of `images`, `(candidates, parts)`.

    `labels` are those of all images.
    """
    found = _of_halves(parts, images).with_values(r2=r2, metric=metric, of_networks=True)
    if labels is None:
        return found
    best = _best_half(parts)
    low = float(best.mean() - _SURE * best.std(ddof=1) / np.sqrt(len(best)))
    chance = chance_of(labels, metric)
    return found.with_values(chance=chance, beats_chance=low > chance)


def _of_halves(scores: FloatArray, images: int) -> Reliability:
    """Return the agreement of the two halves of images, or of parts of them, `(candidates, images or parts)`."""
    reliability = spearman_brown(_correlation(scores[:, ::2].mean(axis=1), scores[:, 1::2].mean(axis=1)))
    variance = float(scores.mean(axis=1).var())
    return Reliability(
        candidates=len(scores),
        images=images,
        reliability=reliability,
        sides=None,
        spread=float(np.sqrt(reliability * variance)),
        noise=float(np.sqrt((1 - reliability) * variance)),
    )


def _best_half(scores: FloatArray) -> FloatArray:
    """Return the second half's scores of the candidate that is best on the first half."""
    return scores[int(np.argmax(scores[:, ::2].mean(axis=1))), 1::2]


def chance_of(labels: npt.NDArray[np.int64], metric: str) -> float:
    """Return the score from class frequencies alone: accuracy in percent, or negative loss in nats."""
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    if metric == "loss":
        return float(np.sum(shares * np.log(shares)))
    return 100.0 * float(shares.max())


def _correlation(one: FloatArray, other: FloatArray) -> float:
    """Return Pearson's correlation; 0 if either is constant."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


class ReliabilityStage(Stage):
    """Stage that estimates the reliability of candidate scores; None for a custom function of widths."""

    name: ClassVar[str] = "reliability"
    file: ClassVar[str] = names.RELIABILITY
    needs: ClassVar[tuple[str, ...]] = ("evolution", "trials")
    kind: ClassVar[str] = "scoring"

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """All settings that the search depends on."""
        return read_for_search(settings)

    def plan(self, settings: Settings, workload: Workload) -> Planned | None:
        """Some candidates on fresh images; nothing for networks, whose scores already have parts."""
        if settings.method.trains_candidates:
            return None
        work = scoring_passes(settings, workload) * usual_macs(workload)
        return Planned(self.name, CANDIDATES, "candidates", work, kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Compare candidates' scores on two halves: of paths on fresh images, of networks on held-out ones."""
        searched: Searched = context.output(search_of(context) or "evolution")
        evaluator = searched.scorer.again
        if isinstance(searched.scorer.score, NetworkScores):
            found = _of_networks(context, searched)
        elif isinstance(evaluator, SupernetEvaluator):
            found = self._of_paths(context, _sample_scored(searched, context.settings.seed), evaluator)
        else:
            found = None
        context.directory.write(self.file, {"reliability": None if found is None else found.model_dump(mode="json")})
        if found is not None:
            context.reporter.note(trust_text(found.verdict, of_networks=found.of_networks))

    def _of_paths(
        self, context: Context, some: Sequence[Candidate], evaluator: SupernetEvaluator
    ) -> Reliability | None:
        if len(some) < _FEWEST:
            return None

        def scores(candidate: Candidate) -> list[list[float]]:
            found: list[list[float]] = evaluator.by_side(candidate.widths).tolist()
            return found

        with context.work(self.name, len(some), "candidates") as advance:
            by_side = np.array(list(context.world.map(scores, some)))
            advance(len(some), "")
        return reliability_of(by_side, _labels(context.workload.fresh) if evaluator.metric == "accuracy" else None)

    def load(self, context: Context) -> Reliability | None:
        """Return the reliability."""
        document = context.directory.read(self.file)["reliability"]
        return None if document is None else Reliability.model_validate(document)


def _of_networks(context: Context, searched: Searched) -> Reliability | None:
    """Estimate reliability from the stored scores on parts of the images."""
    scored = [c for c in _scored_inside(searched) if len(c.parts) > 1]
    if len(scored) < _FEWEST:
        return None
    space = context.workload.space
    metric = context.settings.metric
    r2 = None
    if len(scored) >= _MORE * (len(space.groups) + 1):
        r2 = r2_left_out(space, [c.widths for c in scored], [c.score for c in scored])
    labels = _labels(context.workload.validation)
    found = reliability_in_parts(
        np.array([c.parts for c in scored]),
        len(labels),
        metric=metric,
        labels=None if metric == "own" else labels,
        r2=r2,
    )
    return found if r2 is None else with_ties(found, scored, r2)


def r2_left_out(space: WidthSpace, candidates: Sequence[Widths], scores: Sequence[float]) -> float:
    """Return the share of the scores' variance that widths predict on candidates left out, from 0 to 1.

    It is the larger of the score model's leave-one-out R² and a random forest's out-of-bag R² (Breiman, "Random
    forests", 2001).
    """
    if np.ptp(scores) == 0:
        return 0.0
    from sklearn.ensemble import RandomForestRegressor  # takes a second to import

    forest = RandomForestRegressor(_TREES, oob_score=True, random_state=0)
    forest.fit(np.array(candidates, dtype=np.float64), np.array(scores, dtype=np.float64))
    return max(float(forest.oob_score_), ScoreModel.fit(space, candidates, scores, trust=1.0).r2)


def with_ties(found: Reliability, scored: Sequence[Candidate], r2: float) -> Reliability:
    """Return the reliability with the candidates that a fit of this R² cannot distinguish from the best one."""
    best = max(scored, key=lambda c: c.score)
    left = np.sqrt(1 - r2) * np.std([c.score for c in scored])
    tied = [c for c in scored if c.score >= best.score - left]
    smallest = min(tied, key=lambda c: (c.cost.params, -c.score))
    share = smallest.cost.params / best.cost.params
    return found.with_values(tied=len(tied), smallest=smallest.widths, smallest_params=share)


def _labels(batches: Sequence[Batch]) -> npt.NDArray[np.int64]:
    labels: npt.NDArray[np.int64] = tensors(concat_batches([labels for _, labels in batches]))[0].cpu().numpy()
    return labels


def _scored_inside(searched: Searched) -> list[Candidate]:
    """Return the feasible candidates that were scored on all images."""
    found = searched.found
    return [c for c in found.evaluations if found.budget.admits(c.cost)]


def _sample_scored(searched: Searched, seed: int) -> list[Candidate]:
    """Return a sample of them, drawn independently of their scores."""
    inside = list({c.widths: c for c in _scored_inside(searched)}.values())
    rng = np.random.default_rng([seed, 7])
    chosen = sorted(rng.permutation(len(inside))[:CANDIDATES].tolist())
    return [inside[number] for number in chosen]
