"""Accepting widths under a latency: only once they have been timed themselves, where the model is of this machine.

A model errs on single networks, and a search looks for those it errs on. So the best are timed, and where none keeps to
the limit the model is fitted again, with what was measured: those that it says will hold come next. Where none of these
does either, what was too slow is kept as a round, and the search goes on within a budget that is corrected by it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from bcnet.costs import Latency, TimedNetwork
from bcnet.errors import BudgetError, RunError
from bcnet.latency.fit import fitted
from bcnet.run.workload import Workload
from bcnet.searchers import Candidate
from bcnet.space import Widths
from bcnet.space.problem import Problem
from bcnet.stages.base import Context
from bcnet.stages.calibration import latency_of, timed

SLOW = "slow.json"
MOST_ROUNDS = 3
_AT_ONCE = 8  # candidates that are timed in turns
_TRIES = 5
Slow = Mapping[Widths, TimedNetwork]


class Acceptance:
    """Which of the best of a search keep to the latency. All do where none is limited, or it is another machine's."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._asked = latency_of(context.workload.budget)
        self._rounds = [*slow_rounds(context)]
        self.slow: dict[Widths, TimedNetwork] = dict(self._rounds[-1]) if self._rounds else {}

    @property
    def problem(self) -> Problem:
        """What is searched in this round."""
        workload = self._context.workload
        if self._rounds:
            return corrected_problem(workload, self._rounds[-1])
        return Problem.of(workload.space, workload.budget)

    def holding(self, best: Sequence[Candidate], others: Sequence[Candidate]) -> list[Candidate]:
        """Of the `best` candidates those that keep to the latency as measured; else the first of `others` that do.

        After each try the model is fitted again, with what was measured: of `others`, in their order, those are next
        that it says will hold. None where none of several tries does.
        """
        batch = list(best)
        for _ in range(_TRIES):
            if not batch:
                return []
            found = timed(self._context, [c.widths for c in batch])
            if found is None or self._asked is None:
                return batch
            # What noise leaves open is taken for slow: of many candidates the one that holds by luck would be chosen.
            found = {w: dataclasses.replace(m, nanoseconds=m.nanoseconds * (1 + m.noise)) for w, m in found.items()}
            kept = [c for c in batch if found[c.widths].nanoseconds <= self._limit]
            if kept:
                return kept
            self.slow |= found
            corrected = corrected_latency(self._context.workload, self.slow)
            expected = corrected.values(self._context.workload.space, np.array([c.widths for c in others]))
            waiting = [c for c, time in zip(others, expected.tolist(), strict=True) if time <= self._limit]
            batch = [c for c in waiting if c.widths not in self.slow][:_AT_ONCE]
        return []

    def another_round(self) -> bool:
        """Keep what was too slow, for the search to go on from; whether it may."""
        if len(self._rounds) == MOST_ROUNDS:
            return False
        try:
            corrected_problem(self._context.workload, self.slow)
        except BudgetError:  # as measured, no network of the space is quick enough
            return False
        self._context.reporter.note(
            f"None of {len(self.slow)} candidates kept to the latency as measured: others are scored, within a latency "
            "as corrected by these."
        )
        self._rounds.append(dict(self.slow))
        rounds = [[network.to_list() for network in slow.values()] for slow in self._rounds]
        self._context.directory.write(SLOW, {"rounds": rounds})
        return True

    def error(self) -> RunError:
        """What to say where none was accepted."""
        assert self._asked is not None, "something was too slow"
        if self._context.settings.has_supernet:
            advice = "`bcnet evolve RUN --budget latency=... --out NEW`, which trains no supernet again"
        else:
            advice = "the same command with --take-from RUN --out NEW, which trains no original again"
        quickest = min(m.nanoseconds for m in self.slow.values())
        return RunError(
            f"a search ends with widths whose latency was measured within {self._asked.text(self._limit)}; none of "
            f"{len(self.slow)} candidates was, the quickest took {self._asked.text(quickest)}: search for less by "
            f"{advice}"
        )

    @property
    def _limit(self) -> float:
        assert self._asked is not None, "what was timed has a limit"
        workload = self._context.workload
        return workload.space.feasible(workload.budget).limits[self._asked]


def slow_rounds(context: Context) -> tuple[Slow, ...]:
    """What was too slow when a search was to end, as often as it went on; each has those before it.

    Raises:
        RunError: the file is damaged.
    """
    if latency_of(context.workload.budget) is None or not context.directory.has(SLOW):
        return ()
    try:
        rounds = context.directory.read(SLOW)["rounds"]
        return tuple({m.widths: m for m in map(TimedNetwork.from_list, networks)} for networks in rounds)
    except (KeyError, TypeError, ValueError) as error:
        file = context.directory.file(SLOW)
        raise RunError(f"{file} holds no times ({error!r}): restore it, or start a new run") from None


def corrected_problem(workload: Workload, slow: Slow) -> Problem:
    """What is searched, with latencies as corrected by networks that were too slow.

    Raises:
        BudgetError: the narrowest network of the space is too slow.
    """
    unmeasured = dataclasses.replace(workload.space, measures=())  # a space keeps the model that it has
    return Problem.of(unmeasured, workload.budget.with_measure(corrected_latency(workload, slow)))


def corrected_latency(workload: Workload, slow: Slow) -> Latency:
    """By a model that has seen the `slow` networks too, with a margin beyond which none of them took longer."""
    asked = latency_of(workload.budget)
    assert asked is not None, "what was slow was limited"
    assert asked.model is not None, "what was slow was predicted"
    measured = list(slow.values())
    again = fitted(workload.space, [*asked.model.measured, *measured], asked.model.machine)
    predicted = again.predicted(np.array(list(slow)))
    worst = max(m.nanoseconds / p for m, p in zip(measured, predicted.tolist(), strict=True))
    return dataclasses.replace(asked, model=dataclasses.replace(again, margin=max(0.0, worst - 1)))
