"""What a search cost, in seconds and in trainings of the original network."""

import pytest

from bcnet.run.score import search_cost_text, search_seconds


def test_the_cost_of_a_search_is_told_in_trainings_of_the_original():
    seconds = {"supernet": 100.0, "prior": 5.0, "evolution": 90.0, "rescore": 5.0, "original": 80.0, "Uniform": 40.0}
    assert search_seconds(seconds) == (200.0, 2.5)
    assert search_cost_text(seconds) == "3 min 20 s, 2.5 trainings of the original"
    assert search_cost_text({"trials": 80.0, "original": 80.0}) == "1 min 20 s, 1 training of the original"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ({"original": 80.0, "searched": 40.0}, ""),
        ({"trials": 30.0}, "30 s"),
        ({"trials": 30.0, "original": 0.0}, "30 s"),
        ({"trials": 30.0, "original": 0.5}, "30 s"),
        ({"pruning": 8.0, "original": 80.0}, "8 s, 0.1 trainings of the original"),
    ],
)
def test_where_nothing_was_searched_or_trained_less_is_told(seconds, text):
    assert search_cost_text(seconds) == text
