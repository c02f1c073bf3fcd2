"""The stage that asks how far the scores of a search can be believed.

Notation: `s_1, s_2` the scores of a candidate on two halves of images that took no part in the search, `r` their
correlation over the candidates. What both halves share is the widths, what they do not is noise; for all images

    reliability = 2 r / (1 + r)        (Spearman and Brown),

the share of the scores' variance that widths explain. The same of the means of LEFT and RIGHT is what widths explain
whichever channels are kept: in a supernet that has learnt little, scores repeat themselves on other images and yet say
more of single channels than of widths. Where the smaller of both is near zero, or where no candidate does better than
who always names the most frequent class, a search has chosen by luck. Elsewhere scores repeat themselves, which does
not make them right: shared weights and short trainings may rank widths otherwise than whole trainings do.

Candidates that are trained by themselves were scored by one network each, with the luck of its training: halves share
it, and so agree more than widths do. The score model's R² on candidates left out of its fit (leave-one-out) is free of
it. The smaller of the two counts. Candidates whose scores differ from the best one's by less than what such a fit
leaves, the square root of (1 - R²) times the variance, are tied with it: a search cannot say which of them is better,
and a user may take the smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bcnet.data import Batch
from bcnet.nests import join_batches, tensors
from bcnet.progress.forecast import Planned
from bcnet.run import names
from bcnet.run.reliability import Reliability, spearman_brown
from bcnet.run.score import trust_text
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.searchers import Candidate, SupernetEvaluator, accuracy_interval
from bcnet.searchers.score_model import ScoreModel
from bcnet.stages.base import Context, Stage
from bcnet.stages.scores import NetworkScores
from bcnet.stages.search import Searched, read_for_search, scoring_passes, search_of, usual_macs

FloatArray = npt.NDArray[np.float64]

CANDIDATES = 32
_FEWEST = 3
_SURE = 3.18  # Student's t of four parts, 97.5 %
_MORE = 2  # candidates for each group, and as many again, that a fit is asked of


def reliability_of(by_side: FloatArray, labels: npt.NDArray[np.int64] | None = None) -> Reliability:
    """The reliability of scores of single images, `(candidates, sides, images)`.

    `labels` `(images,)` where a score is the accuracy in percent.
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
    """The reliability of scores of networks on parts of `images`, `(candidates, parts)`; `labels` are of all images."""
    found = _of_halves(parts, images).with_values(r2=r2, metric=metric, of_networks=True)
    if labels is None:
        return found
    best = _best_half(parts)
    low = float(best.mean() - _SURE * best.std(ddof=1) / np.sqrt(len(best)))
    chance = chance_of(labels, metric)
    return found.with_values(chance=chance, beats_chance=low > chance)


def _of_halves(scores: FloatArray, images: int) -> Reliability:
    """Return what the halves of images, or of parts of them, `(candidates, images or parts)`, have in common."""
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
    """The second half's scores of the candidate that is the best on the first half."""
    return scores[int(np.argmax(scores[:, ::2].mean(axis=1))), 1::2]


def chance_of(labels: npt.NDArray[np.int64], metric: str) -> float:
    """Return what the frequencies of the classes alone score: the accuracy in percent, or minus the loss in nats."""
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    if metric == "loss":
        return float(np.sum(shares * np.log(shares)))
    return 100.0 * float(shares.max())


def _correlation(one: FloatArray, other: FloatArray) -> float:
    """Pearson's; 0 where one of them is constant."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


class ReliabilityStage(Stage):
    """Comes to how far the scores can be believed; to None where they are the user's own function of widths."""

    name: ClassVar[str] = "reliability"
    file: ClassVar[str] = names.RELIABILITY
    needs: ClassVar[tuple[str, ...]] = ("evolution", "trials")
    kind: ClassVar[str] = "scoring"

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """All that the search depends on."""
        return read_for_search(settings)

    def plan(self, settings: Settings, workload: Workload) -> Planned | None:
        """Some candidates, on fresh images; networks have told all that they have to tell."""
        if settings.method.trains_candidates:
            return None
        work = scoring_passes(settings, workload) * usual_macs(workload)
        return Planned(self.name, CANDIDATES, "candidates", work, kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Compare the scores of candidates on two halves of images: of paths on fresh ones, of networks on held-out."""
        searched: Searched = context.output(search_of(context) or "evolution")
        evaluator = searched.scorer.again
        if isinstance(searched.scorer.score, NetworkScores):
            found = _of_networks(context, searched)
        elif isinstance(evaluator, SupernetEvaluator):
            found = self._of_paths(context, _some(searched, context.settings.seed), evaluator)
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
        """Return what was found."""
        document = context.directory.read(self.file)["reliability"]
        return None if document is None else Reliability.model_validate(document)


def _of_networks(context: Context, searched: Searched) -> Reliability | None:
    """Judge by the parts of the images that are kept with the scores."""
    scored = [c for c in _inside(searched) if len(c.parts) > 1]
    if len(scored) < _FEWEST:
        return None
    space = context.workload.space
    metric = context.settings.metric
    r2 = None
    if len(scored) >= _MORE * (len(space.groups) + 1):
        r2 = ScoreModel.fit(space, [c.widths for c in scored], [c.score for c in scored], trust=1.0).r2
    labels = _labels(context.workload.validation)
    found = reliability_in_parts(
        np.array([c.parts for c in scored]),
        len(labels),
        metric=metric,
        labels=None if metric == "own" else labels,
        r2=r2,
    )
    return found if r2 is None else with_ties(found, scored, r2)


def with_ties(found: Reliability, scored: Sequence[Candidate], r2: float) -> Reliability:
    """Return the same with the candidates that a fit of this R² cannot tell from the best one."""
    best = max(scored, key=lambda c: c.score)
    left = np.sqrt(1 - r2) * np.std([c.score for c in scored])
    tied = [c for c in scored if c.score >= best.score - left]
    smallest = min(tied, key=lambda c: (c.cost.params, -c.score))
    share = smallest.cost.params / best.cost.params
    return found.with_values(tied=len(tied), smallest=smallest.widths, smallest_params=share)


def _labels(batches: Sequence[Batch]) -> npt.NDArray[np.int64]:
    labels: npt.NDArray[np.int64] = tensors(join_batches([labels for _, labels in batches]))[0].cpu().numpy()
    return labels


def _inside(searched: Searched) -> list[Candidate]:
    """Candidates within the budget that were scored on all images."""
    found = searched.found
    return [c for c in found.evaluations if found.budget.admits(c.cost)]


def _some(searched: Searched, seed: int) -> list[Candidate]:
    """Some of them, drawn without regard to their scores."""
    inside = list({c.widths: c for c in _inside(searched)}.values())
    rng = np.random.default_rng([seed, 7])
    chosen = sorted(rng.permutation(len(inside))[:CANDIDATES].tolist())
    return [inside[number] for number in chosen]
