"""Racing: what is stopped cannot be retained, what is not stopped has the score of exhaustive scoring, and the rest."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding

from bcnet.errors import SearchError
from bcnet.searchers import Candidate, EvaluationStore, Evolution, Race, Random, rescore, search_widths
from bcnet.searchers.racing import estimates, standard_error
from bcnet.searchers.result import pareto_front
from bcnet.searchers.survival import crowding, retained
from bcnet.space import Budget, Cost
from bcnet.testing.searchers import smooth_score, toy_space

HALF = Budget(macs=0.5)
SPACE = toy_space(6)
SEARCH = Evolution(population=12, generations=6, parents=4)


class Noisy:
    """A smooth score whose batches differ in difficulty, and by a little more for each candidate."""

    def __init__(self, batches: int = 20, noise: float = 0.1) -> None:
        self.batches, self.noise, self.calls = batches, noise, []

    def on_batch(self, widths, number):
        self.calls.append((widths, number))
        own = np.random.default_rng([number, *widths]).normal(0, self.noise)
        return smooth_score(widths) + float(np.random.default_rng(number).normal(0, 3)) + float(own)

    def __call__(self, widths):
        return float(np.mean([self.on_batch(widths, number) for number in range(self.batches)]))


def raced(score=None, **options):
    return search_widths(SPACE, score or Noisy(), HALF, searcher=SEARCH, early_stop=Race(), **options)


def test_candidates_are_stopped_and_the_others_have_the_score_of_all_batches():
    score = Noisy()
    result = raced(score)
    assert len(score.calls) == sum(len(c.batches) for c in result.evaluations)
    assert 0 < result.stopped < len(result.evaluations)
    assert result.effort == len(score.calls) / (20 * len(result.evaluations)) < 0.8
    whole = Noisy()
    for c in result.evaluations:
        assert len(c.batches) == 20 if c.complete else Race().first <= len(c.batches) < 20
        if c.complete:
            assert c.score == whole(c.widths)
        else:
            assert c.score < c.upper
            assert c.score == pytest.approx(whole(c.widths), abs=6 * 0.1)
    assert sum(c.complete for c in result.evaluations[: SEARCH.population]) >= SEARCH.parents


def test_what_was_stopped_is_never_best_or_on_the_front_or_scored_again():
    stopped = Candidate((1,), 9.0, Cost(1, 1), (9.0, 9.0), 9.5)
    whole = Candidate((2,), 1.0, Cost(2, 1), (1.0, 1.0, 1.0))
    assert pareto_front([stopped, whole]) == (whole,)
    result = raced()
    assert result.best.complete
    assert all(c.complete for c in result.front)
    assert result.best_under(Budget(macs=0.45)).complete

    class Images:
        metric = "loss"

        def per_image(self, widths):
            return np.array([1.0, 2.0])

    assert [r.candidate for r in rescore([stopped, whole], Images(), 2)] == [whole]


def test_without_noise_exactly_those_retained_are_scored_on_everything():
    result = raced(Noisy(noise=1e-9))
    first = result.evaluations[: SEARCH.population]
    scores, macs = np.array([[smooth_score(c.widths) for c in first]]), np.array([c.cost.macs for c in first])
    assert [c.complete for c in first] == retained(scores, np.arange(len(first)), macs, SEARCH.parents)[0].tolist()
    assert result.best == max(result.evaluations, key=lambda c: c.score)
    assert result.stopped > 40
    exhaustive = search_widths(SPACE, Noisy(noise=0.0), HALF, searcher=SEARCH)
    assert exhaustive.evaluations[: SEARCH.population] != first
    assert [c.widths for c in exhaustive.evaluations[: SEARCH.population]] == [c.widths for c in first]


def test_the_result_does_not_depend_on_who_scores_and_in_which_order():
    def backwards(function, items):
        jobs = list(items)
        return iter([function(job) for job in reversed(jobs)][::-1])

    alone = raced()
    assert raced(mapper=backwards) == alone
    with ThreadPoolExecutor(3) as pool:
        assert raced(mapper=pool.map) == alone


@pytest.mark.parametrize("done", [5, 20, 41])
def test_a_search_killed_anywhere_comes_to_the_same_end(tmp_path, done):
    whole, score = raced(), Noisy()
    with EvaluationStore(tmp_path / "e.sqlite", SPACE) as store:
        for candidate in whole.evaluations[:done]:
            store.add(candidate)
    with EvaluationStore(tmp_path / "e.sqlite", SPACE) as store:
        assert raced(score, store=store) == whole
        assert store.evaluations == whole.evaluations
    assert len(score.calls) == sum(len(c.batches) for c in whole.evaluations[done:])


def test_other_searchers_are_scored_on_everything():
    score = Noisy(batches=9)
    result = search_widths(SPACE, score, HALF, searcher=Random(30), early_stop=Race())
    assert result.stopped == 0
    assert result.effort == 1.0
    assert len(score.calls) == 30 * 9


def test_a_generation_of_hopeless_candidates_leaves_the_parents_as_they_are():
    """Nothing survives of such a generation: evolution goes on from the parents, to its limit."""

    class Falling(Noisy):
        def on_batch(self, widths, number):
            first = len({w for w, _ in self.calls} | {widths}) <= SEARCH.population
            return super().on_batch(widths, number) - (0 if first else 100)

    narrowest = min(raced(Falling()).evaluations[: SEARCH.population], key=lambda c: c.cost.macs)
    result = raced(Falling())
    assert result.best in result.evaluations[: SEARCH.population]
    assert len(result.evaluations) == SEARCH.limit
    assert all(c.complete <= (c.cost.macs <= narrowest.cost.macs) for c in result.evaluations[SEARCH.population :])


def test_nobody_is_stopped_before_the_places_are_taken():
    searcher = Evolution(population=3, generations=5, parents=9)
    result = search_widths(SPACE, Noisy(), HALF, searcher=searcher, early_stop=Race())
    assert all(c.complete for c in result.evaluations[:9])


def test_the_estimate_and_its_error_by_hand():
    """n = 4 of B = 10 and one held: differences of the two 2, 0, -2, 0, of variance 8 / 3."""
    held = np.array([[5.0, 6.0, 7.0, 6.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]])
    met = np.array([[7.0, 6.0, 5.0, 6.0]])
    assert standard_error(met, held) == pytest.approx(math.sqrt(8 / 3 * 0.6 / 4))
    assert estimates(met, held) == pytest.approx([6.0 + (5.4 - 6.0)])
    assert Race().looks(20) == [4, 6, 8, 11, 15, 20]
    assert Race(first=2).looks(2) == [2]
    assert Race().looks(3) == [3]


def test_who_could_be_the_best_stays_though_nobody_would_retain_it():
    rng = np.random.default_rng(5)
    scores = rng.normal(0, 1, (2, 30)) + np.array([[0.0], [4.0]])
    difference = rng.normal(0, 1, 30)
    scores = np.concatenate([scores, scores[1:] + difference - difference.mean() - 0.001])
    outcomes = {}
    for level in (1e-6, 0.5):

        def never(values, members):
            return np.zeros(values.shape, dtype=bool)

        race = Race(level=level, lenience=0.5)
        outcomes[level] = race.run(lambda who, a, b: scores[who, a:b], never, np.empty((0, 30)), 3)
    whole = {level: [o.upper is None for o in of] for level, of in outcomes.items()}
    assert whole[1e-6] == [False, True, True]
    assert sum(whole[0.5]) == 1


@given(st.lists(st.floats(-5, 5), min_size=10, max_size=10))
def test_what_all_see_on_a_batch_decides_nothing(hard):
    rng = np.random.default_rng(0)
    scores, held = rng.normal(0, 1, (8, 10)), rng.normal(1, 1, (3, 10))

    def stopped(scores, held):
        def best(values, members):
            return retained(values, members, macs=np.arange(11), keep=3)

        return [o.upper is None for o in Race().run(lambda who, a, b: scores[who, a:b], best, held, 8)]

    assert stopped(scores, held) == stopped(scores + np.array(hard), held + np.array(hard))


def test_scores_scatter_about_their_estimates_as_the_standard_error_says():
    rng = np.random.default_rng(1)
    scores = rng.normal(0, 1, (4000, 40)) + rng.normal(0, 5, 40)
    met, held = scores[:, :10], np.empty((0, 40))
    off = scores.mean(axis=1) - estimates(met, held)
    assert (off[::2] - off[1::2]).std() == pytest.approx(standard_error(met, held), rel=0.03)


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_whom_nsga2_retains_is_what_pymoo_says(seed, keep):
    rng = np.random.default_rng(seed)
    scores, macs = rng.permutation(12).astype(float), rng.permutation(12)
    population = Population.new("F", np.column_stack([-scores, macs]), "number", np.arange(12))
    survivors = RankAndCrowding().do(Problem(n_var=1, n_obj=2), population, n_survive=keep, random_state=rng)
    ours = retained(scores[None], np.arange(12), macs, keep)[0]
    assert ours.sum() == keep
    ranks = {k: set(np.flatnonzero(ours)) & set(v) for k, v in _fronts(scores, macs).items()}
    theirs = {k: set(survivors.get("number")) & set(v) for k, v in _fronts(scores, macs).items()}
    assert {k: len(v) for k, v in ranks.items()} == {k: len(v) for k, v in theirs.items()}
    for k, members in _fronts(scores, macs).items():
        distances = dict(zip(members, crowding(np.array([scores[members], macs[members]], dtype=float)), strict=True))
        assert sorted(distances[m] for m in ranks[k]) == pytest.approx(sorted(distances[m] for m in theirs[k]))


def _fronts(scores, macs):
    left, fronts = list(range(len(scores))), {}
    while left:
        front = [a for a in left if not any(scores[b] >= scores[a] and macs[b] <= macs[a] and b != a for b in left)]
        fronts[len(fronts)], left = front, [a for a in left if a not in front]
    return fronts


def test_several_cases_at_once_are_each_for_itself():
    rng = np.random.default_rng(3)
    scores, macs = rng.integers(0, 5, (6, 9)).astype(float), rng.integers(0, 5, 9)
    together = retained(scores, np.arange(9), macs, 4)
    assert together.sum(axis=1).tolist() == [4] * 6
    assert all(
        (retained(row[None], np.arange(9), macs, 4)[0] == t).all() for row, t in zip(scores, together, strict=True)
    )
    members = np.array([7, 2, 3])
    assert (
        retained(scores[:, members], members, macs, 1) == retained(scores[:, members], np.arange(3), macs[members], 1)
    ).all()


def test_mistakes_are_named():
    for level in (0.0, 0.6, math.nan):
        with pytest.raises(SearchError, match=r"level of early stopping is a chance above 0, at most 0\.5; got"):
            Race(level=level)
    with pytest.raises(SearchError, match="the lenience of early stopping"):
        Race(lenience=1.0)
    with pytest.raises(SearchError, match="two batches at the earliest; got first 1"):
        Race(first=1)
    with pytest.raises(SearchError, match="needs a score made of batches, as SupernetEvaluator is; got function"):
        search_widths(SPACE, smooth_score, HALF, early_stop=Race())

    class Broken(Noisy):
        def on_batch(self, widths, number):
            return math.nan

    with pytest.raises(SearchError, match="finite number, higher is better; widths"):
        raced(Broken())
