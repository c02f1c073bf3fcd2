"""A study: ask and tell give what the search gives, in any order, by several workers, and after a kill."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from bcnet import Budget, Evolution, ModelBased, Study
from bcnet.errors import BudgetError, RunError, SearchError
from bcnet.prior import prior_of_errors
from bcnet.searchers import Random, search_widths
from bcnet.testing import toy_space
from bcnet.testing.searchers import smooth_score

SPACE = toy_space(4)
BUDGET = Budget(macs=0.5)
PRIOR = prior_of_errors([[1 / (1 + k) for k in range(len(g.choices))] for g in SPACE.groups], SPACE, BUDGET)
SEARCHERS = [ModelBased(24), Random(24), Evolution(8, 3, 4, PRIOR)]


@pytest.mark.parametrize("searcher", SEARCHERS, ids=lambda s: type(s).__name__)
def test_a_study_scores_what_a_search_scores(searcher):
    whole = search_widths(SPACE, smooth_score, BUDGET, searcher=searcher)
    study = Study(SPACE, BUDGET, searcher=searcher)
    assert study.optimize(smooth_score) == whole.best
    assert study.evaluations == whole.evaluations
    assert study.is_finished


@pytest.mark.parametrize("searcher", SEARCHERS, ids=lambda s: type(s).__name__)
def test_one_at_a_time_and_out_of_order_is_the_same(searcher):
    study = Study(SPACE, BUDGET, searcher=searcher)
    while batch := study.ask_batch():
        for widths in reversed(batch):
            study.tell(widths, smooth_score(widths))
    whole = search_widths(SPACE, smooth_score, BUDGET, searcher=searcher)
    assert {c.widths for c in study.evaluations} == {c.widths for c in whole.evaluations}
    assert study.best.score == whole.best.score


def test_a_stopped_study_goes_on_from_its_store(tmp_path):
    calls = []

    def counted(widths):
        calls.append(widths)
        return smooth_score(widths)

    with Study(SPACE, BUDGET, store=tmp_path / "s.sqlite") as study:
        study.optimize(counted, n=10)
    with Study(SPACE, BUDGET, store=tmp_path / "s.sqlite") as study:
        best = study.optimize(counted, n=20)
    assert len(calls) == len(set(calls)) == 20
    assert best == Study(SPACE, BUDGET).optimize(smooth_score, n=20)
    with pytest.raises(RunError):
        Study(SPACE, BUDGET, store=tmp_path / "s.sqlite", settings="other data")


def test_workers_share_the_candidates():
    with ThreadPoolExecutor(4) as pool:
        best = Study(SPACE, BUDGET).optimize(smooth_score, mapper=pool.map)
    assert best == Study(SPACE, BUDGET).optimize(smooth_score)


def test_candidates_at_work_are_not_given_twice():
    study = Study(SPACE, BUDGET)
    first = study.ask_batch()
    assert len(set(first)) == len(first)
    assert study.ask_batch() == []
    with pytest.raises(SearchError, match=r"waits for the scores .* call tell"):
        study.ask()
    for widths in first:
        study.tell(widths, smooth_score(widths))
    assert study.ask() not in first


def test_what_is_told_wrongly_is_refused_and_changes_nothing():
    study = Study(SPACE, BUDGET)
    with pytest.raises(SearchError, match="no best widths before the first score"):
        _ = study.best
    widths = study.ask()
    with pytest.raises(SearchError, match="finite"):
        study.tell(widths, float("nan"))
    with pytest.raises(SearchError, match=r"that ask has returned; got \[1, 1, 1, 1\]"):
        study.tell((1, 1, 1, 1), 0.5)
    assert study.evaluations == ()
    study.tell(widths, 0.5)
    with pytest.raises(SearchError, match=r"must be scored once; .* have the score 0\.5 already"):
        study.tell(widths, 0.7)
    with pytest.raises(BudgetError, match="narrowest network"):
        Study(SPACE, Budget(macs=1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"space": BUDGET, "budget": SPACE}, "in this order; got Budget and WidthSpace"),
        ({"searcher": "evolution"}, "got 'evolution'"),
        ({"searcher": Evolution}, "such as bcnet.Evolution.*got <class"),
    ],
)
def test_arguments_of_other_types_are_refused(arguments, message):
    with pytest.raises(SearchError, match=message):
        Study(**{"space": SPACE, "budget": BUDGET, **arguments})


def test_random_widths_are_near_the_budget_and_of_the_seed():
    drawn = [SPACE.random(macs=0.5, seed=seed) for seed in range(8)]
    limit = SPACE.feasible(BUDGET).macs
    assert all(0.9 * limit <= SPACE.cost(widths).macs <= limit for widths in drawn)
    assert len(set(drawn)) > 4
    assert SPACE.random(BUDGET, seed=3) == drawn[3]
