from bcnet.pipeline.choice import best_again, choice, finalists
from bcnet.searchers import Candidate, Rescored
from bcnet.space import Cost


def candidate(name: int, score: float, macs: int) -> Candidate:
    return Candidate((name,), score, Cost(macs, macs))


def rescored(name: int, first: float, second: float, macs: int, error: float = 1.0) -> Rescored:
    return Rescored(candidate(name, first, macs), second, second - 1.96 * error, second + 1.96 * error)


def test_finalists_of_equal_score_are_those_that_use_the_budget():
    candidates = [candidate(0, 90, 5), candidate(1, 90, 7), candidate(2, 91, 1), candidate(3, 80, 9)]
    assert [c.widths for c in finalists(candidates, 2)] == [(2,), (1,)]


def test_of_candidates_that_cannot_be_told_apart_the_one_with_most_macs_is_trained():
    found = choice([rescored(0, 95, 95, 100), rescored(1, 95, 94, 200), rescored(2, 90, 90, 300)], 100, 100)
    assert found.widths == (1,)  # pooled 94.5, within 0.71 of 95


def test_a_clear_winner_is_trained_whatever_it_costs():
    found = choice([rescored(0, 95, 95, 100), rescored(1, 95, 93, 200)], 100, 100)
    assert found.widths == (0,)


def test_images_weigh_alike_in_both_scores():
    found = choice([rescored(0, 90, 94, 100, 0.01), rescored(1, 92, 91, 100, 0.01)], 300, 100)
    assert found.widths == (1,)  # 91.75 against 91.0


def test_without_noise_only_ties_are_equal():
    found = choice([rescored(0, 100, 100, 100, 0), rescored(1, 100, 100, 150, 0), rescored(2, 99, 100, 200, 0)], 10, 10)
    assert found.widths == (1,)


def test_a_second_score_after_longer_tuning_decides_alone():
    found = best_again([rescored(0, 95, 93, 300), rescored(1, 90, 94, 100), rescored(2, 99, 94, 200)], 100)
    assert found.widths == (2,)  # though no first score told it from the widest
    assert found.fresh_images == 100
