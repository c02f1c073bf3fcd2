"""Timing in turns: what is prepared is not timed, the order rotates, and a GPU is waited for."""

import pytest
import torch

from bcnet.machine import timing
from bcnet.machine.timing import Pace, Stopwatch, in_turns, prepare_nothing


@pytest.fixture
def heard(monkeypatch):
    """What was called when; the clock goes on by a second whenever it is read."""
    events = []
    seconds = iter(range(10_000))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: float(next(seconds)))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: events.append("wait"))
    return events


@pytest.mark.parametrize(("first_stays", "order"), [(False, "abcabcbcacab"), (True, "abcabcacbabc")])
def test_the_order_rotates_and_the_warm_up_does_not_count(heard, first_stays, order):
    arms = {name: (prepare_nothing, lambda name=name: heard.append(name)) for name in "abc"}
    taken = in_turns(lambda number: arms, Pace.of_rounds(3), first_stays=first_stays)
    assert "".join(heard) == order
    assert {name: seconds.tolist() for name, seconds in taken.items()} == {name: [1.0, 1.0, 1.0] for name in "abc"}


def test_a_gpu_has_done_all_it_was_given_whenever_the_clock_is_read(heard):
    arms = {"a": (lambda: heard.append("prepare"), lambda: heard.append("a"))}
    in_turns(lambda number: arms, Pace.of_rounds(1), device="cuda")
    assert heard == [*["prepare", "wait", "a", "wait"], "wait", *["prepare", "wait", "a", "wait"]]


@pytest.mark.parametrize(("pace", "rounds"), [(Pace(10.0, 1, 9), 4), (Pace(0.0, 3, 9), 3), (Pace(1e6, 1, 5), 5)])
def test_rounds_go_on_for_some_seconds(heard, pace, rounds):
    taken = in_turns(
        lambda number: {"a": (prepare_nothing, prepare_nothing)}, pace
    )  # the clock is read three times a round
    assert len(taken["a"]) == rounds


def test_a_stopwatch_tells_how_long_the_process_waited():
    watch = Stopwatch()
    sum(range(100_000))
    wall, queued = watch.read()
    assert wall > 0
    assert queued >= 0
    assert 0 <= watch.waiting_share() <= 1.5  # two readings of two clocks
