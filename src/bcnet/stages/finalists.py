"""Stage of the finalists: scores the best candidates again and chooses one, since their scores are noisy.

Notation: `a` is the score of a candidate on `n` validation images, `b` that on `m` fresh ones, and `s` the standard
error of `b`. The pooled score `(n a + m b) / (n + m)` has a standard error of about `s * sqrt(m / (n + m))`. Candidates
within one standard error of the best pooled score cannot be distinguished. Among these the one with the most
multiply-adds is trained: the budget allows it, and its own weights suit a wider network better than shared ones.

A searcher that models the scores chooses by its model, and its choice is the only finalist. If candidates are
trainings, it must have scored no worse than the widths that need no search.

If finalists are trained longer for `b` than for `a`, `b` is the better measure, and the best by `b` is trained. The
longer trainings go to finalists that differ from each other, since a search ends with many near copies of its best
candidate, and to the widths that need no search, if they were scored. The best of the latter is trained unless it is
more than `s` below the best of all. This is the one-standard-error rule (Breiman, Friedman, Olshen and Stone,
"Classification and Regression Trees", 1984, section 3.4.3): among indistinguishable candidates, take the simplest.
Every second score is stored as soon as it is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bcnet.display import score_text
from bcnet.errors import RunError
from bcnet.methods import SupernetMethod, Trainings
from bcnet.methods.trainings import for_epochs
from bcnet.progress.forecast import Planned
from bcnet.run import names
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.searchers import Candidate, Rescored, rescore
from bcnet.space import Widths, WidthSpace
from bcnet.space.problem import Problem
from bcnet.stages.acceptance import Acceptance
from bcnet.stages.base import TRAINING_PASS, Context, Stage
from bcnet.stages.scores import Scorer
from bcnet.stages.search import Searched, read_for_search, search_of, usual_macs
from bcnet.stages.trials import longer_epochs

_FINALISTS_OF_RANDOM = 10
_INTERVAL = 2 * 1.96  # width of a 95 % interval in standard errors


@dataclass(frozen=True)
class Choice:
    """The widths to train, and the second scores of all finalists, best first.

    Only the second scores have an interval, since the first ones were selected for being high.

    """

    widths: Widths
    rescored: tuple[Rescored, ...]
    fresh_images: int


def finalists(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """Return the `count` best by score; among equals, those with more multiply-adds."""
    return sorted(candidates, key=lambda c: (-c.score, -c.cost.macs))[:count]


def choose_apart(best: Sequence[Candidate], count: int, space: WidthSpace, distance: float) -> list[Candidate]:
    """Return the first `count` that differ from all before by a mean `distance` in width ratio."""
    ratios = np.array([c.widths for c in best]).reshape(len(best), len(space.full)) / space.full
    kept: list[int] = []
    for number, ratio in enumerate(ratios):
        if len(kept) < count and np.all(np.abs(ratios[kept] - ratio).mean(axis=1) >= distance):
            kept.append(number)
    return [best[number] for number in kept]


def heuristics_next(best: Sequence[Candidate], heuristics: Set[Widths]) -> list[Candidate]:
    """Return the first candidate, then those among `heuristics`, then the rest, each in the given order."""
    return [*best[:1], *sorted(best[1:], key=lambda candidate: candidate.widths not in heuristics)]


def no_worse(ordered: Sequence[Candidate], heuristics: Set[Widths]) -> list[Candidate]:
    """Return the candidates that scored no worse than the best of `heuristics`, in order.

    All if none of these was scored.
    """
    free = max((c.score for c in ordered if c.widths in heuristics), default=-math.inf)
    return [c for c in ordered if c.score >= free]


def pooled_choice(rescored: Sequence[Rescored], validation_images: int, fresh_images: int) -> Choice:
    """Return the finalist with the most multiply-adds among those that cannot be distinguished from the best."""
    total = validation_images + fresh_images

    def pool(r: Rescored) -> float:
        return (r.candidate.score * validation_images + r.score * fresh_images) / total

    best = max(rescored, key=lambda r: (pool(r), r.candidate.cost.macs))
    error = (best.high - best.low) / _INTERVAL * math.sqrt(fresh_images / total)
    equal = [r for r in rescored if pool(r) >= pool(best) - error]
    chosen = max(equal, key=lambda r: (r.candidate.cost.macs, pool(r)))
    return Choice(chosen.candidate.widths, tuple(rescored), fresh_images)


def best_again(rescored: Sequence[Rescored], fresh_images: int, heuristics: Set[Widths] = frozenset()) -> Choice:
    """Return the finalist with the best second score, or the best of `heuristics` within one standard error of it.

    Among equals it is the one with the most multiply-adds.
    """

    def by_score(r: Rescored) -> tuple[float, int]:
        return r.score, r.candidate.cost.macs

    best = max(rescored, key=by_score)
    error = (best.high - best.low) / _INTERVAL
    equal = [r for r in rescored if r.candidate.widths in heuristics and r.score >= best.score - error]
    chosen = max(equal, key=by_score, default=best)
    return Choice(chosen.candidate.widths, tuple(rescored), fresh_images)


class FinalistsStage(Stage):
    """Stage that chooses one of the best candidates."""

    name: ClassVar[str] = "finalists"
    file: ClassVar[str] = names.RESCORED
    needs: ClassVar[tuple[str, ...]] = ("evolution", "trials")
    kind: ClassVar[str] = "training"

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """All settings that the search depends on."""
        return read_for_search(settings)

    def plan(self, settings: Settings, workload: Workload) -> Planned | None:
        """Shown in the plan if finalists are trained first."""
        longer = longer_epochs(settings)
        if longer is not None:
            recipe = for_epochs(settings.training, longer)
            passes = TRAINING_PASS * len(workload.training_batches) * recipe.epochs * recipe.batch_size
            work = passes * usual_macs(workload)
            return Planned(self.name, _count(settings), "networks", work, kind=self.kind, file=self.file)
        return None

    @property
    def timed_as(self) -> tuple[str, ...]:
        """Also the name used by earlier versions."""
        return ("rescore",)

    def run(self, context: Context) -> None:
        """Score the best candidates again, if the scorer can."""
        name = search_of(context) or "evolution"
        searched: Searched = context.output(name)
        acceptance = Acceptance(context)
        best = self._best(context, searched, acceptance)
        while not best and acceptance.another_round(searched.searcher, searched.found.evaluations):
            searched = context.look_again(name)
            best = self._best(context, searched, acceptance)
        if not best:
            raise acceptance.error()
        with context.directory.time_stage("rescore"):
            rows = [_row(r) for r in _scored_again(context, searched.scorer, best)]
            context.directory.write(self.file, {"rescored": rows})

    def _best(self, context: Context, searched: Searched, acceptance: Acceptance) -> list[Candidate]:
        """Return the candidates to score again, among those that satisfy the budget as measured; empty if none does."""
        longer = searched.scorer.longer
        problem = Problem.of(context.workload.space, context.workload.budget)
        inside = list(_scored_inside(searched).values())
        modelled = searched.searcher.choose(problem, inside)  # ranked by the searcher's model
        ordered = finalists(inside, len(inside)) if modelled is None else modelled
        free = acceptance.free
        if modelled is not None and context.settings.method.trains_candidates and not longer:
            ordered = no_worse([c for c in ordered if c.widths not in acceptance.slow], free)
        ranked = heuristics_next(ordered, free) if longer else ordered
        with context.directory.time_stage("rescore"):
            best = acceptance.keep_limit(_finalists(context, searched.scorer, ranked), ordered)
        return best if modelled is None or longer else best[:1]

    def load(self, context: Context) -> Choice:
        """Return the choice."""
        context.directory.drop(names.FINALISTS)
        searched: Searched = context.output(search_of(context) or "evolution")
        fresh = sum(len(y) for _, y in context.workload.fresh) if searched.scorer.again is not None else 0
        try:
            rescored = _read(context, self.file, _scored_inside(searched))
        except (KeyError, TypeError, ValueError, OverflowError):
            rescored = []
        if not rescored:
            raise RunError(
                f"{context.directory.file(self.file)} names widths that {names.EVALUATIONS} lacks: restore the two "
                "files, or start a new run"
            )
        if searched.scorer.longer:
            return best_again(rescored, fresh, Acceptance(context).free)
        return pooled_choice(rescored, sum(len(y) for _, y in context.workload.validation), fresh)


def _scored_inside(searched: Searched) -> dict[Widths, Candidate]:
    found = searched.found
    return {c.widths: c for c in found.evaluations if found.budget.admits(c.cost)}


def _finalists(context: Context, scorer: Scorer, ranked: Sequence[Candidate]) -> list[Candidate]:
    """Select finalists: the best candidates, at least one width choice apart on average if they are trained further."""
    settings = context.settings
    if not scorer.longer:
        return list(ranked[: _count(settings)])
    return choose_apart(ranked, _count(settings), context.workload.space, 1 / settings.space.num_choices)


def _count(settings: Settings) -> int:
    """Return the number of candidates that are scored again."""
    method = settings.method
    if isinstance(method, SupernetMethod):
        return method.rescored
    finalists = method.finalists if isinstance(method, Trainings) else _FINALISTS_OF_RANDOM
    assert finalists is not None, "a run completes its method before it starts"
    return finalists


def _scored_again(context: Context, scorer: Scorer, best: Sequence[Candidate]) -> tuple[Rescored, ...]:
    if scorer.again is None:
        return tuple(Rescored(c, c.score, c.score, c.score) for c in best)
    if not scorer.longer:
        return rescore(best, scorer.again, len(best), mapper=scorer.mapper or context.world.map)
    begun = context.directory.has(names.FINALISTS)
    done = _read(context, names.FINALISTS, {c.widths: c for c in best}) if begun else []
    scored = {r.candidate.widths for r in done}
    with context.reporter.stage("finalists", len(best), "networks") as advance:

        def keep(rescored: Rescored) -> None:
            done.append(rescored)
            context.directory.write(names.FINALISTS, {"rescored": [_row(r) for r in done]})
            top = max(r.score for r in done)
            advance(len(done), f"best score {score_text(top, context.settings.metric)}")

        waiting = [c for c in best if c.widths not in scored]
        rescore(waiting, scorer.again, len(waiting), mapper=scorer.mapper or context.world.map, callback=keep)
    return tuple(sorted(done, key=lambda r: -r.score))


def _row(rescored: Rescored) -> list[Any]:
    return [list(rescored.candidate.widths), rescored.score, rescored.low, rescored.high]


def _read(context: Context, name: str, known: dict[tuple[int, ...], Candidate]) -> list[Rescored]:
    rows = context.directory.read(name)["rescored"]
    return [Rescored(known[tuple(w)], float(score), float(low), float(high)) for w, score, low, high in rows]
