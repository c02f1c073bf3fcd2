"""Stage of the search: scores candidates and stores every evaluation (spec, section 5)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from bcnet.costs import Cost
from bcnet.display import score_text
from bcnet.methods import BCNet, Trainings, TrainingsMethod
from bcnet.prior import Prior
from bcnet.progress.base import Advance
from bcnet.progress.forecast import Planned
from bcnet.run import names
from bcnet.run.callables import takes_prior
from bcnet.run.directory import RunDirectory
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.searchers import (
    TRUST_IN_PATHS,
    Candidate,
    EvaluationStore,
    Evolution,
    Greedy,
    ModelBased,
    PriorOnly,
    Random,
    Searcher,
    SearchResult,
    heuristic_widths,
    search_widths,
)
from bcnet.searchers.search import Evaluator
from bcnet.space.problem import Problem
from bcnet.stages.acceptance import rounds_of
from bcnet.stages.base import TRAINING, Context, Stage, search_bytes
from bcnet.stages.scores import Scorer, supernet_scorer
from bcnet.stages.supernet import PriorStage, method_of
from bcnet.train import STRATEGIES

_SEARCH = (
    *("method.", "limits", "custom_score", "options.layout"),
    *("options.validation_fraction", "options.fresh_fraction", "options.score_batch_size"),
)


def read_for_search(settings: Settings) -> tuple[str, ...]:
    """Return the settings that scores depend on: those of trained networks, or of a supernet that starts from one."""
    method = settings.method
    return (*_SEARCH, *(TRAINING if method.trains_candidates or method.inherits else ()))


@dataclass(frozen=True)
class Searched:
    """All evaluations, the scorer, and the searcher."""

    found: SearchResult
    scorer: Scorer
    searcher: Searcher


def searcher_of(context: Context) -> Searcher:
    """Return the searcher: the user's own, or that of the run's method.

    If it has a field `prior` that is None, it gets the run's prior.

    """
    method = context.settings.method
    own = context.workload.source.own.searcher
    prior: Prior | None = context.output("prior") if PriorStage.name in context.names else None
    if own is not None:
        return dataclasses.replace(own, prior=prior) if takes_prior(own) else own  # type: ignore[type-var]
    candidates = candidates_of(None, context.settings)
    name = getattr(method, "searcher", "random")
    if name == "model":
        if isinstance(method, Trainings):
            return ModelBased(candidates, reach=method.reach)
        return ModelBased(candidates, trust=TRUST_IN_PATHS)
    if name == "greedy":
        return Greedy(candidates)
    if name == "random":
        return Random(candidates)
    if name == "prior-only":
        assert prior is not None
        return PriorOnly(prior, candidates)
    assert isinstance(method, BCNet), "only BCNet has evolution"
    problem = Problem.of(context.workload.space, context.workload.budget)
    heuristics = heuristic_widths(problem) if method.first_generation == "balanced" else {}
    return Evolution(
        method.population,
        method.generations,
        method.parents,
        prior,
        first=tuple(heuristics.values()),
        macs_from=method.macs_from,
        tournament=method.tournament,
    )


def run_search(context: Context, searcher: Searcher, scorer: Scorer, stage: str) -> SearchResult:
    """Run the search, replaying its stored evaluations."""
    settings = context.settings
    workload = context.workload
    directory = context.directory
    own_seed: int | None = getattr(settings.method, "seed", None)
    # A finished search needs no room, since it is only read.
    if not directory.has(names.RESCORED):
        directory.check_room(stage, search_bytes(searcher.limit, len(workload.space.groups)))
    with (
        _evaluations(context) as store,
        _timed_unless(len(store.evaluations) >= searcher.limit, directory, stage),
        context.reporter.stage(stage, searcher.limit, "candidates") as advance,
    ):
        found = search_widths(
            workload.space,
            scorer.score,
            workload.budget,
            searcher=searcher,
            seed=settings.seed if own_seed is None else own_seed,
            store=store,
            callback=_Told(context, stage, advance, len(store.evaluations)),
            mapper=scorer.mapper or context.world.map,
        )
    for note in found.notes:
        context.reporter.note(note)
    return found


def searched_by(context: Context, searcher: Searcher, scorer: Scorer, stage: str) -> Searched:
    """Run the search and, if all of its best were too slow as measured, further rounds."""
    found = run_search(context, searcher, scorer, stage)
    problem = Problem.of(context.workload.space, context.workload.budget)
    for further in rounds_of(context):
        known = [c.widths for c in found.evaluations]
        widths = [*known, *further.widths]
        with (
            _evaluations(context) as store,
            _timed_unless(len(store.evaluations) >= len(widths), context.directory, stage),
            context.reporter.stage(stage, len(widths), "candidates") as advance,
        ):
            evaluator = Evaluator(
                problem,
                scorer.score,
                limit=len(widths),
                over_budget=searcher.over_budget,
                mapper=scorer.mapper or context.world.map,
            )
            evaluator.attach(store, _Told(context, stage, advance, len(store.evaluations)))
            evaluator.evaluate(widths)
        found = found.with_further(evaluator.evaluations[len(known) :])
    return Searched(found, scorer, searcher)


class EvolutionStage(Stage):
    """Stage that scores candidates."""

    name: ClassVar[str] = "evolution"
    file: ClassVar[str] = names.EVALUATIONS
    needs: ClassVar[tuple[str, ...]] = ("supernet", "prior")
    kind: ClassVar[str] = "scoring"

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """The method, the budget, the scoring images, and everything that scores depend on."""
        return read_for_search(settings)

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """At most all candidates."""
        work = scoring_passes(settings, workload) * usual_macs(workload)
        total = candidates_of(workload.source.own.searcher, settings)
        return Planned(self.name, total, "candidates", work, kind=self.kind, file=names.RESCORED)

    def run(self, context: Context) -> None:
        """Score candidates, storing each."""
        self.output(context)

    def load(self, context: Context) -> Searched:
        """Return the evaluations by replaying the store."""
        return self.output(context)

    def output(self, context: Context) -> Searched:
        """Return the search; running and loading are the same, since a search replays its store."""
        scorer = supernet_scorer(context, context.output("supernet")[0])
        return searched_by(context, searcher_of(context), scorer, self.name)

    def reuse(self, theirs: RunDirectory, context: Context) -> None:
        """Copy candidates that are missing here."""
        space = context.workload.space
        ours = context.directory
        with (
            EvaluationStore(theirs.file(self.file), space, theirs.settings.fingerprint()) as source,
            EvaluationStore(ours.file(self.file), space, ours.settings.fingerprint()) as target,
        ):
            for candidate in source.evaluations[len(target.evaluations) :]:
                target.add(candidate)
        if theirs.has(names.LATENCY_ROUNDS):
            ours.write(names.LATENCY_ROUNDS, theirs.read(names.LATENCY_ROUNDS))


def search_of(context: Context) -> str | None:
    """Return the name of the stage that scores candidates, or None."""
    return next((name for name in ("evolution", "trials") if name in context.names), None)


def found_by(context: Context) -> SearchResult | None:
    """Return all evaluations of a run; None if it scores no candidates."""
    name = search_of(context)
    found: SearchResult | None = None if name is None else context.output(name).found
    return found


def candidates_of(own: Searcher | None, settings: Settings) -> int:
    """Return the largest number of candidates that are scored."""
    if own is not None:
        return own.limit
    method = settings.method
    if isinstance(method, TrainingsMethod):
        assert method.networks is not None, "a run completes its method before it starts"
        return method.networks
    supernet = method_of(settings)
    return supernet.population * supernet.generations


def usual_macs(workload: Workload) -> int:
    """Return the expected multiply-adds of candidates, which use up the budget."""
    reference = workload.space.reference
    limit = workload.budget.resolve(reference).macs
    most = int(reference.macs)
    return most if limit is None else min(int(limit), most)


def scoring_passes(settings: Settings, workload: Workload) -> int:
    """Return the number of forward passes per image that score a candidate."""
    return len(STRATEGIES[method_of(settings).strategy]().sides) * sum(len(labels) for _, labels in workload.validation)


class _Told:
    """Reports every candidate, and the best feasible one so far.

    The first `stored` candidates are replayed; they are not reported and do not count for the speed.

    """

    def __init__(self, context: Context, stage: str, advance: Advance, stored: int) -> None:
        self._reporter = context.reporter
        self._stage = stage
        self._advance = advance
        self._stored = stored
        self._metric = context.settings.metric
        self._budget = context.workload.space.feasible(context.workload.budget)
        self._best: float | None = None  # greedy search starts over the budget

    def __call__(self, candidate: Candidate, done: int, limit: int) -> None:
        if self._budget.admits(candidate.cost):
            self._best = candidate.score if self._best is None else max(self._best, candidate.score)
        if done <= self._stored:
            return
        figures = {"score": candidate.score, "macs": float(candidate.cost.macs)}
        detail = "none within the budget yet"
        if self._best is not None:
            figures["best score"] = self._best
            detail = f"best score {score_text(self._best, self._metric)}"
        self._reporter.figures(self._stage, done, figures)
        self._reporter.evaluation(candidate, done)
        self._advance(done, detail)


@contextmanager
def _evaluations(context: Context) -> Iterator[EvaluationStore]:
    """Yield the evaluation store.

    Other processes than the first use a copy in memory and replay the same evaluations.
    """
    space = context.workload.space
    settings = context.settings
    file = context.directory.file(names.EVALUATIONS)
    with contextlib.ExitStack() as held:
        opened: list[EvaluationStore] = []

        def known_rows() -> list[Any]:
            opened.append(held.enter_context(EvaluationStore(file, space, settings.fingerprint())))
            return [vars(c) | {"cost": _plain_cost(c.cost)} for c in opened[0].evaluations]

        rows = context.world.on_rank_zero(known_rows)
        if not opened:
            opened.append(held.enter_context(EvaluationStore(":memory:", space, settings.fingerprint())))
            for row in rows:
                widths = tuple(row["widths"])
                parts = tuple(row["parts"])
                opened[0].add(Candidate(widths, row["score"], Cost(**row["cost"]), parts))
        yield opened[0]


@contextmanager
def _timed_unless(finished: bool, directory: RunDirectory, stage: str) -> Iterator[None]:
    if finished:
        yield
    else:
        with directory.time_stage(stage):
            yield


def _plain_cost(cost: Cost) -> dict[str, Any]:
    return {"macs": cost.macs, "params": cost.params, "others": dict(cost.others)}
