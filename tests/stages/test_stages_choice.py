import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_job import Notes, TinyNetwork, tiny_search

import bcnet
from bcnet.searchers import Candidate, Rescored
from bcnet.space import Cost, WidthSpace
from bcnet.stages.finalists import best_again, choose_apart, finalists, heuristics_next, no_worse, pooled_choice


def candidate(name: int, score: float, macs: int) -> Candidate:
    return Candidate((name,), score, Cost(macs, macs))


def rescored(name: int, first: float, second: float, macs: int, error: float = 1.0) -> Rescored:
    return Rescored(candidate(name, first, macs), second, second - 1.96 * error, second + 1.96 * error)


def test_finalists_of_equal_score_are_those_that_use_the_budget():
    candidates = [candidate(0, 90, 5), candidate(1, 90, 7), candidate(2, 91, 1), candidate(3, 80, 9)]
    assert [c.widths for c in finalists(candidates, 2)] == [(2,), (1,)]


def test_of_candidates_that_cannot_be_told_apart_the_one_with_most_macs_is_trained():
    found = pooled_choice([rescored(0, 95, 95, 100), rescored(1, 95, 94, 200), rescored(2, 90, 90, 300)], 100, 100)
    assert found.widths == (1,)  # pooled 94.5, within 0.71 of 95


def test_a_clear_winner_is_trained_whatever_it_costs():
    found = pooled_choice([rescored(0, 95, 95, 100), rescored(1, 95, 93, 200)], 100, 100)
    assert found.widths == (0,)


def test_images_weigh_alike_in_both_scores():
    found = pooled_choice([rescored(0, 90, 94, 100, 0.01), rescored(1, 92, 91, 100, 0.01)], 300, 100)
    assert found.widths == (1,)  # 91.75 against 91.0


def test_without_noise_only_ties_are_equal():
    found = pooled_choice(
        [rescored(0, 100, 100, 100, 0), rescored(1, 100, 100, 150, 0), rescored(2, 99, 100, 200, 0)], 10, 10
    )
    assert found.widths == (1,)


def test_a_second_score_after_longer_tuning_decides_alone():
    found = best_again([rescored(0, 95, 93, 300), rescored(1, 90, 94, 100), rescored(2, 99, 94, 200)], 100)
    assert found.widths == (2,)  # though no first score told it from the widest
    assert found.fresh_images == 100


@pytest.mark.parametrize(
    ("scores", "free", "chosen"),
    [
        ((94.0, 93.5, 90.0), {1, 2}, 1),  # within one standard error of the best, which is 1
        ((94.0, 92.9, 90.0), {1, 2}, 0),  # below it: the search has left them on evidence
        ((94.0, 93.5, 93.6), {1, 2}, 2),  # of those that are free the better one
        ((94.0, 93.5, 93.6), set(), 0),
        ((94.0, 93.9, 93.6), {0}, 0),
        ((93.5, 93.9, 94.0), {9}, 2),  # free, but no finalist
    ],
)
def test_widths_that_need_no_search_are_left_on_evidence_only(scores, free, chosen):
    found = best_again([rescored(n, 95, score, 100) for n, score in enumerate(scores)], 100, {(n,) for n in free})
    assert found.widths == (chosen,)


@pytest.fixture(scope="module")
def space() -> WidthSpace:
    return WidthSpace.trace(TinyNetwork(), torch.zeros(1, 1, 8, 8), num_choices=4)


@given(data=st.data(), distance=st.sampled_from([0.0, 0.1, 0.25, 0.4, 1.0]))
def test_finalists_apart_are_the_best_of_all_that_are_near(space, data, distance):
    one = st.tuples(*(st.integers(1, width) for width in space.full))
    found = data.draw(st.dictionaries(one, st.integers(0, 5), min_size=1, max_size=20))
    candidates = [Candidate(widths, float(score), space.cost(widths)) for widths, score in found.items()]

    def between(a: Candidate, b: Candidate) -> float:
        return float(np.mean(np.abs(np.array(a.widths) / space.full - np.array(b.widths) / space.full)))

    best = finalists(candidates, len(candidates))
    kept = choose_apart(best, len(candidates), space, distance)
    assert kept[0] == finalists(candidates, 1)[0]
    assert kept == finalists(kept, len(kept)), "best first"
    for i, candidate in enumerate(kept):
        assert all(between(candidate, better) >= distance - 1e-12 for better in kept[:i])
    for candidate in candidates:
        if candidate not in kept:
            near = [k for k in kept if between(candidate, k) < distance + 1e-12]
            assert any(k.score >= candidate.score for k in near), "left out for one that is as good"
    for count in range(4):
        assert choose_apart(best, count, space, distance) == kept[:count]


def test_widths_that_need_no_search_are_looked_at_next_after_the_best():
    best = [candidate(name, 90 - name, 5) for name in range(5)]
    assert [c.widths[0] for c in heuristics_next(best, {(3,), (1,), (9,)})] == [0, 1, 3, 2, 4]
    assert heuristics_next(best, {(0,)}) == best
    assert heuristics_next([], {(0,)}) == []


def test_a_model_alone_is_no_evidence_against_widths_that_scored_better():
    expected = [candidate(0, 88, 5), candidate(1, 91, 5), candidate(2, 90, 5), candidate(3, 86, 5)]  # the best first
    assert [c.widths[0] for c in no_worse(expected, {(2,), (3,)})] == [1, 2]
    assert [c.widths[0] for c in no_worse(expected, {(1,)})] == [1]
    assert no_worse(expected, {(9,)}) == expected
    assert no_worse([], {(0,)}) == []


@pytest.mark.parametrize(("space", "told"), [({"multiple_of": 1}, True), ({}, False)])
def test_free_widths_are_told_what_they_cost(tmp_path, space, told):
    notes = Notes()
    tiny_search(tmp_path, method=bcnet.Uniform(), space=space, reporter=notes)
    assert any("any number of channels (multiple_of=1)" in note for note in notes.notes) == told
