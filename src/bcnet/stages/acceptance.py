"""Acceptance of widths under a latency limit: they are timed first, if the latency model is of this machine.

A latency model has errors, and a search finds the networks where it errs. So the best candidates are timed. If none
satisfies the limit, the model is fitted again with these measurements, and the candidates that it then predicts to be
fast enough are timed next. If none of these satisfies it either, the search continues. Timing a network takes a moment
and scoring it a training, so new widths, including those that need no search, are timed before they are scored, and
only those that satisfy the limit are scored.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcnet.costs import Budget, Latency, Measure, TimedNetwork
from bcnet.errors import BudgetError, RunError
from bcnet.latency.fit import fit_model
from bcnet.run import names
from bcnet.run.workload import Workload
from bcnet.searchers import Candidate, Searcher, heuristic_widths
from bcnet.space import Widths
from bcnet.space.problem import Problem
from bcnet.stages.base import Context
from bcnet.stages.calibration import is_here, latency_of, time_networks

_MOST_ROUNDS = 3
_MORE = 8  # candidates of a round
_AT_ONCE = 8  # candidates timed in turns
_TRIES = 8
_SHARES = (1.0, 0.97, 0.94, 0.91, 0.88, 0.85, 0.8, 0.75)  # shares of the limit, tried in turn


@dataclass(frozen=True)
class Round:
    """Widths to score if all of the best were too slow.

    `free` of them need no search. All satisfy the limit as measured.
    """

    widths: tuple[Widths, ...]
    free: tuple[Widths, ...]


class Acceptance:
    """Selects the best candidates of a search that satisfy the latency limit as measured.

    Without a latency limit, or with a model of another machine, all of them do.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._asked = latency_of(context.workload.budget)
        self._rounds = [*rounds_of(context)]
        self.slow: dict[Widths, TimedNetwork] = {}

    @property
    def free(self) -> set[Widths]:
        """Widths of the last round that need no search."""
        if self._rounds:
            return set(self._rounds[-1].free)
        workload = self._context.workload
        return set(heuristic_widths(Problem.of(workload.space, workload.budget)).values())

    def keep_limit(self, best: Sequence[Candidate], others: Sequence[Candidate]) -> list[Candidate]:
        """Return the `best` candidates that satisfy the measured limit; otherwise the first of `others` that do.

        After each attempt the model is fitted again with the new measurements, and the next of `others`, in order, that
        it predicts to be fast enough are timed. None if several attempts fail.
        """
        batch = list(best)
        for _ in range(_TRIES):
            if not batch:
                return []
            if not self._is_measured:
                return batch
            quick = self._quick([c.widths for c in batch])
            kept = [c for c in batch if c.widths in quick]
            if kept:
                return kept
            # The measurements so far tell which of the others are worth timing.
            corrected = corrected_latency(self._context.workload, self.slow)
            expected = corrected.values(self._context.workload.space, np.array([c.widths for c in others]))
            waiting = [c for c, time in zip(others, expected.tolist(), strict=True) if time <= self._limit]
            batch = [c for c in waiting if c.widths not in self.slow][:_AT_ONCE]
        return []

    def another_round(self, searcher: Searcher, candidates: Sequence[Candidate]) -> bool:
        """Find further widths that satisfy the limit and store them for scoring; return whether there are any."""
        # Each round costs trainings, so a model that stays wrong ends the search with an error.
        if len(self._rounds) == _MOST_ROUNDS or not self._is_measured:
            return False
        found = self._propose(searcher, candidates)
        if not found.widths:
            return False
        self._context.reporter.note(
            f"None of {len(self.slow)} networks satisfied the measured limit: {len(found.widths)} more that do are "
            "scored."
        )
        self._rounds.append(found)
        self._context.directory.write(
            names.LATENCY_ROUNDS, {"rounds": [dataclasses.asdict(one) for one in self._rounds]}
        )
        return True

    def error(self) -> RunError:
        """Return the error for a search in which nothing was accepted."""
        assert self._asked is not None, "something was too slow"
        kept = "supernet" if self._context.settings.method.trains_supernet else "original"
        advice = f"the same command with --reuse RUN --out NEW, which trains no {kept} again"
        quickest = min(m.nanoseconds for m in self.slow.values())
        return RunError(
            f"a search ends with widths whose latency was measured within {self._asked.text(self._limit)}; none of "
            f"{len(self.slow)} candidates was, the quickest took {self._asked.text(quickest)}: search for less by "
            f"{advice}"
        )

    def _propose(self, searcher: Searcher, candidates: Sequence[Candidate]) -> Round:
        """Propose widths under the corrected limit, and under smaller ones until enough satisfy it.

        The widest first.
        """
        workload = self._context.workload
        within = Problem.of(workload.space, workload.budget)
        scored = {c.widths for c in candidates}
        free: dict[str, Widths] = {}
        holding: dict[Widths, None] = {}
        for share in _SHARES:
            try:
                problem = corrected_problem(workload, self.slow, share)
            except BudgetError:  # as measured, every network of the space is too slow
                break
            further = searcher.further_proposals(problem, candidates)
            if not further:
                break
            heuristics = {name: w for name, w in heuristic_widths(problem).items() if name not in free}
            wanted = dict.fromkeys(w for w in (*heuristics.values(), *further) if w not in holding)
            admitted = [w for w in wanted if within.budget.admits(within.space.cost(w)) and w not in self.slow]
            quick = self._quick(admitted) if admitted else set()
            free |= {name: w for name, w in heuristics.items() if w in quick}
            holding |= dict.fromkeys(w for w in admitted if w in quick)
            if len(free) == len(heuristic_widths(problem)) and len(holding) >= _MORE:
                break
        first = dict.fromkeys((*free.values(), *holding))
        return Round(tuple(w for w in first if w not in scored)[:_MORE], tuple(free.values()))

    def _quick(self, widths: Sequence[Widths]) -> set[Widths]:
        """Return the widths that satisfy the limit as measured; record the others as slow."""
        found = time_networks(self._context, widths) or {}
        # Widths within noise of the limit count as slow: among many candidates, one would pass by luck.
        found = {w: dataclasses.replace(m, nanoseconds=m.nanoseconds * (1 + m.noise)) for w, m in found.items()}
        quick = {w for w, m in found.items() if m.nanoseconds <= self._limit}
        self.slow |= {w: m for w, m in found.items() if w not in quick}
        return quick

    @property
    def _is_measured(self) -> bool:
        return self._asked is not None and is_here(self._asked)

    @property
    def _limit(self) -> float:
        assert self._asked is not None, "what was timed has a limit"
        workload = self._context.workload
        return workload.space.feasible(workload.budget).limits[self._asked]


def rounds_of(context: Context) -> tuple[Round, ...]:
    """Return the rounds that were scored after the search because all of its best were too slow.

    Raises:
        RunError: the file is corrupt.
    """
    if latency_of(context.workload.budget) is None or not context.directory.has(names.LATENCY_ROUNDS):
        return ()
    try:
        return tuple(_read(one) for one in context.directory.read(names.LATENCY_ROUNDS)["rounds"])
    except (KeyError, TypeError, ValueError) as error:
        file = context.directory.file(names.LATENCY_ROUNDS)
        raise RunError(f"{file} holds no widths ({error!r}): restore it, or start a new run") from None


def _read(document: Mapping[str, Any]) -> Round:
    return Round(*(tuple(tuple(map(int, widths)) for widths in document[name]) for name in ("widths", "free")))


def corrected_problem(workload: Workload, slow: Mapping[Widths, TimedNetwork], share: float = 1.0) -> Problem:
    """Return the problem with latencies corrected by the networks that were too slow, under a share of their limit.

    Raises:
        BudgetError: the narrowest network of the space is too slow.
    """
    corrected = corrected_latency(workload, slow)
    limits = workload.space.feasible(workload.budget).limits
    given: dict[Measure, int | float] = {m: limit for m, limit in limits.items() if m != corrected}
    given[corrected] = round(share * limits[corrected])
    # Costs of a problem are computed by the space's measures, which hold the uncorrected model.
    unmeasured = dataclasses.replace(workload.space, measures=())  # a space keeps its first model
    return Problem.of(unmeasured, Budget(given))


def corrected_latency(workload: Workload, slow: Mapping[Widths, TimedNetwork]) -> Latency:
    """Return the latency with a model fitted to the `slow` networks too, plus their median remaining excess."""
    latency = latency_of(workload.budget)
    assert latency is not None, "what was slow was limited"
    assert latency.model is not None, "what was slow was predicted"
    if not slow:
        return latency
    measured = list(slow.values())
    again = fit_model(workload.space, [*latency.model.measured, *measured], latency.model.machine)
    predicted = again.predict(np.array(list(slow))).tolist()
    more = statistics.median(m.nanoseconds / p for m, p in zip(measured, predicted, strict=True))
    return dataclasses.replace(latency, model=dataclasses.replace(again, margin=max(0.0, more - 1)))
