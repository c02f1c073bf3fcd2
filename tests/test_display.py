"""Durations and sizes as people read them, everywhere the same."""

import pytest

from bcnet.display import duration, size, trainings_text


@pytest.mark.parametrize(
    ("count", "text"),
    [(100, "100 bytes"), (2048, "2 KiB"), (5.5 * 2**20, "5.5 MiB"), (2_254_857_830, "2.1 GiB"), (2**41, "2.0 TiB")],
)
def test_sizes_for_people(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.017, "0.017 s"),
        (41.4, "41 s"),
        (300, "5 min"),
        (563, "9 min 23 s"),
        (4800, "1 h 20 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_durations_for_people(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0.614, "0.61"), (2.413, "2.4"), (150.2, "150"), (2513.0, "2,513")])
def test_numbers_of_trainings_for_people(count, text):
    assert trainings_text(count) == text
