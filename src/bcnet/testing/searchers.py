"""Requirements on every searcher, as checks that take a function which makes one.

Example, a complete test module for your searcher:

    import pytest
    from bcnet.testing import SEARCHER_CHECKS

    @pytest.mark.parametrize("check", SEARCHER_CHECKS, ids=lambda check: check.__name__)
    def test_mine(check):
        check(make_mine)

`make_mine(space, budget, evaluations)` returns the searcher with that evaluation limit, or fewer if its settings allow
only certain limits. It must be a top-level function of a module, so that another process can import it.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from types import MappingProxyType

import numpy as np

from bcnet.errors import BudgetError, SearchError
from bcnet.searchers import EvaluationStore, Searcher, SearchResult, search_widths
from bcnet.space import Budget, Polynomial, WidthGroup, Widths, WidthSpace, floor_choices

Make = Callable[[WidthSpace, Budget, int], Searcher]
Check = Callable[[Make], None]
_HALF = Budget(macs=0.5)


def toy_space(groups: int, channels: int = 32, choices: int = 8, parameters: int = 9) -> WidthSpace:
    """Return a chain of `groups` convolutions with up to `channels` channels; MACs couple neighbours."""
    pairs: dict[tuple[int, ...], int] = {(g, g + 1): 9 * 16 for g in range(groups - 1)}
    ends: dict[tuple[int, ...], int] = {(0,): 27 * 64}
    ends[groups - 1,] = ends.get((groups - 1,), 0) + 10
    grid = floor_choices(channels, choices)
    return WidthSpace(
        groups=tuple(WidthGroup(f"conv{g}", channels, 1, grid, (f"conv{g}.weight",)) for g in range(groups)),
        macs_terms=Polynomial(MappingProxyType({**ends, **pairs})),
        params_terms=Polynomial(MappingProxyType({(): parameters, **dict.fromkeys(pairs, 9), (0,): 27})),
    )


def smooth_score(widths: Widths) -> float:
    """Return a score with an optimum inside the space that depends on every group."""
    return float(sum(math.log(w + (3 * g) % 7) for g, w in enumerate(widths)))


class _Counted:
    """A score that records its calls."""

    def __init__(self, score: Callable[[Widths], float] = smooth_score) -> None:
        self.calls: Counter[Widths] = Counter()
        self._score = score

    def __call__(self, widths: Widths) -> float:
        self.calls[widths] += 1
        return self._score(widths)


def _search(
    make: Make,
    space: WidthSpace,
    budget: Budget,
    evaluations: int,
    score: Callable[[Widths], float] = smooth_score,
    seed: int = 0,
) -> SearchResult:
    return search_widths(space, score, budget, searcher=make(space, budget, evaluations), seed=seed)


def respects_the_budget(make: Make) -> None:
    """Best, front and, unless `over_budget`, all evaluations satisfy the budget: MACs, params, or both."""
    space = toy_space(6)
    for budget in (_HALF, Budget(params=0.4), Budget(macs=0.5, params=0.4)):
        limits = space.feasible(budget)
        result = _search(make, space, budget, 120)
        shown = (result.best, *result.front)
        assert all(limits.admits(c.cost) for c in shown)
        if not make(space, budget, 120).over_budget:
            assert all(limits.admits(c.cost) for c in result.evaluations)
        assert all(c.cost == space.cost(c.widths) for c in result.evaluations)
        assert all(c.widths == space.nearest(c.widths) for c in result.evaluations), "widths that are no choices"


def never_scores_twice(make: Make) -> None:
    """The score is called once per candidate, and every call is an evaluation."""
    score = _Counted()
    result = _search(make, toy_space(4, choices=4), _HALF, 200, score)
    assert set(score.calls.values()) == {1}
    assert list(score.calls) == [c.widths for c in result.evaluations]


def stops_at_its_limit(make: Make) -> None:
    """There are no more evaluations than the searcher's limit."""
    space = toy_space(8)
    for evaluations in (1, 7, 100):
        searcher = make(space, _HALF, evaluations)
        result = search_widths(space, smooth_score, _HALF, searcher=searcher)
        assert searcher.limit <= evaluations
        assert 1 <= len(result.evaluations) <= evaluations


def same_seed_same_result(make: Make) -> None:
    """Two searches with one seed agree in every evaluation."""
    space = toy_space(6)
    assert _search(make, space, _HALF, 120, seed=3) == _search(make, space, _HALF, 120, seed=3)


def same_result_in_another_process(make: Make) -> None:
    """Another interpreter makes the same evaluations in the same order."""
    here = [list(c.widths) for c in _search(make, toy_space(6), _HALF, 120, seed=3).evaluations]
    path, module = _locate_maker(make)
    command = (
        f"import sys, json; sys.path.insert(0, {path!r}); import {module} as m\n"
        "from bcnet.testing import searchers as s\n"
        f"r = s._search(m.{make.__qualname__}, s.toy_space(6), s._HALF, 120, seed=3)\n"
        "print(json.dumps([list(c.widths) for c in r.evaluations]))"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
    run = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == here


def _locate_maker(make: Make) -> tuple[str, str]:
    """Return folder and name under which another process imports the module of `make`."""
    module = sys.modules[make.__module__]
    assert module.__file__ is not None, "make is a function at the top level of a module"
    path = Path(module.__file__)
    return (str(path.parent), path.stem) if "." not in make.__module__ else ("", make.__module__)


def takes_equal_scores(make: Make) -> None:
    """A constant score ends the search normally, with the cheapest candidate as the best one."""
    result = _search(make, toy_space(5), _HALF, 100, lambda _: 1.0)
    inside = [c for c in result.evaluations if result.budget.admits(c.cost)]
    assert result.best.cost.macs == min(c.cost.macs for c in inside)
    assert len(result.front) == 1


def names_the_widths_of_a_bad_score(make: Make) -> None:
    """NaN, infinity, non-numbers and exceptions of the score become a SearchError that names the widths."""
    space = toy_space(5)

    def fail(_: Widths) -> float:
        raise ZeroDivisionError("no luck")

    bad: list[Callable[[Widths], float]] = [lambda _: math.nan, lambda _: math.inf, lambda _: "0.9", fail]  # type: ignore[list-item,return-value]
    for score in bad:
        counted = _Counted(score)
        error = _catch(SearchError, partial(_search, make, space, _HALF, 50, counted))
        (widths,) = counted.calls
        assert str(widths) in str(error)
        assert score is not fail or isinstance(error.__cause__, ZeroDivisionError)


def _catch(kind: type[Exception], call: Callable[[], object]) -> Exception:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def refuses_an_infeasible_budget(make: Make) -> None:
    """A budget below the cheapest network is a BudgetError that names its cost, before anything is scored."""
    space = toy_space(5)
    searcher = make(space, _HALF, 50)
    score = _Counted()
    cheapest = space.cost(space.narrowest).macs
    too_low = Budget(macs=cheapest - 1)
    error = _catch(BudgetError, lambda: search_widths(space, score, too_low, searcher=searcher))
    assert f"{cheapest:,}" in str(error)
    assert not score.calls


def finds_all_of_a_handful(make: Make) -> None:
    """If a budget admits only a few of many candidates, an exhaustive searcher finds all of them."""
    space = toy_space(10)
    low = list(space.narrowest)
    one_wider = [tuple(space.groups[g].choices[1] if h == g else w for h, w in enumerate(low)) for g in range(10)]
    cheapest = sorted(space.cost(w).macs for w in one_wider)
    budget = Budget(macs=int(cheapest[4]))
    result = _search(make, space, budget, 400)
    found = {c.widths for c in result.evaluations if result.budget.admits(c.cost)}
    expected = {w for w in (tuple(low), *one_wider) if result.budget.admits(space.cost(w))}
    assert found == expected if make(space, budget, 400).exhaustive else found <= expected
    only = Budget(macs=space.cost(space.narrowest).macs)
    assert _search(make, space, only, 400).best.widths == space.narrowest


def finds_all_of_a_small_space(make: Make) -> None:
    """With fewer candidates than evaluations, an exhaustive searcher ends having found every one."""
    space = toy_space(3, choices=4)
    limits = space.feasible(_HALF)
    everything = product(*(group.choices for group in space.groups))
    expected = {w for w in everything if limits.admits(space.cost(w))}
    found = {c.widths for c in _search(make, space, _HALF, 400).evaluations}
    assert not make(space, _HALF, 400).exhaustive or found == expected


def takes_one_group(make: Make) -> None:
    """A space with one group works."""
    space = toy_space(1, channels=64, choices=20)
    result = _search(make, space, _HALF, 60, lambda widths: float(widths[0]))
    assert result.best.widths == (32,)


def takes_150_groups(make: Make) -> None:
    """A space with 150 groups of 20 choices works."""
    space = toy_space(150, channels=64, choices=20)
    result = _search(make, space, _HALF, 60)
    assert result.budget.admits(result.best.cost)


def replays_from_a_store(make: Make) -> None:
    """A search resumed from any prefix of its evaluations gives the same result, scoring only the missing ones."""
    space = toy_space(5)
    whole = _search(make, space, _HALF, 90, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        for done in sorted({0, 1, len(whole.evaluations) // 2, len(whole.evaluations)}):
            score = _Counted()
            with EvaluationStore(Path(folder) / f"{done}.sqlite", space) as store:
                for candidate in whole.evaluations[:done]:
                    store.add(candidate)
                resumed = search_widths(space, score, _HALF, searcher=make(space, _HALF, 90), seed=1, store=store)
                assert store.evaluations == whole.evaluations
            assert resumed == whole
            assert len(score.calls) == len(whole.evaluations) - done


def keeps_the_front(make: Make) -> None:
    """Best and front are those of all feasible evaluations, and hypervolumes never decrease."""
    space = toy_space(6)
    result = _search(make, space, _HALF, 150)
    inside = [c for c in result.evaluations if result.budget.admits(c.cost)]
    assert result.best.score == max(c.score for c in inside)
    undominated = [
        c
        for c in inside
        if not any(
            o.score >= c.score and o.cost.macs <= c.cost.macs and (o.score, -o.cost.macs) != (c.score, -c.cost.macs)
            for o in inside
        )
    ]
    assert {(c.score, c.cost.macs) for c in result.front} == {(c.score, c.cost.macs) for c in undominated}
    assert list(result.hypervolumes) == sorted(result.hypervolumes)
    assert np.isfinite(result.hypervolumes).all()
    for candidate in result.front:
        assert result.best_under(Budget(macs=candidate.cost.macs)).score == candidate.score


SEARCHER_CHECKS: tuple[Check, ...] = (
    respects_the_budget,
    never_scores_twice,
    stops_at_its_limit,
    same_seed_same_result,
    same_result_in_another_process,
    takes_equal_scores,
    names_the_widths_of_a_bad_score,
    refuses_an_infeasible_budget,
    finds_all_of_a_handful,
    finds_all_of_a_small_space,
    takes_one_group,
    takes_150_groups,
    replays_from_a_store,
    keeps_the_front,
)
