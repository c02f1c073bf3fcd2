"""The bounded curve of a loss: nothing but what was heard, however long, and in one piece over resumes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcnet.progress.base import Reporter
from bcnet.progress.record import LossCurve, RunRecord, read_record


def heard(losses, first=1, curve=None):
    curve = curve or LossCurve()
    for step, loss in enumerate(losses, first):
        curve.add(step, loss)
    return curve


@given(losses=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=1500))
def test_bins_are_what_their_steps_were(losses):
    bins = heard(losses).bins
    assert len(bins) <= 200
    ends = [int(b[0]) for b in bins]
    assert ends[-1] == len(losses)
    for start, (end, count, mean, least, largest) in zip([0, *ends], bins, strict=False):
        part = losses[start : int(end)]
        assert count == len(part)
        assert mean == pytest.approx(sum(part) / len(part), abs=1e-6 + 1e-9 * max(map(abs, part)))
        assert (least, largest) == (min(part), max(part))


def test_all_bins_but_the_last_are_equally_wide():
    counts = [b[1] for b in heard([1.0] * 1003).bins]
    assert set(counts[:-1]) == {8}
    assert counts[-1] == 1003 % 8


@given(n=st.integers(1, 900), back=st.integers(1, 900), more=st.integers(0, 300))
def test_steps_heard_again_replace_those_of_before(n, back, more):
    step = max(1, n - back)
    curve = heard([5.0] * n)
    heard([1.0] * (n - step + 1 + more), step, curve)
    assert curve.bins[-1][0] == n + more
    new, count = n - step + 1 + more, sum(b[1] for b in curve.bins)
    assert new <= count <= step - 1 + new
    assert sum(b[1] * b[2] for b in curve.bins) == pytest.approx(new + 5.0 * (count - new))
    ends = [b[0] for b in curve.bins]
    assert ends == sorted(set(ends))


def test_what_is_no_number_is_left_out():
    assert heard([1.0, math.nan, 3.0, math.inf]).bins == [[1, 1, 1.0, 1.0, 1.0], [3, 1, 3.0, 3.0, 3.0]]


def test_a_record_keeps_the_curves_of_the_process_before(tmp_path):
    whole = LossCurve()
    for steps in (range(1, 451), range(401, 901)):  # a resume from the checkpoint of step 400
        with RunRecord(tmp_path) as record, record.stage("supernet", 900, "steps") as advance:
            for step in steps:
                record.figures("supernet", step, {"loss": 1.0 / step, "learning rate": 0.1})
                whole.add(step, 1.0 / step)
                advance(step, "")
    kept = read_record(tmp_path).curves
    assert list(kept) == ["supernet"]
    assert [list(b) for b in kept["supernet"].bins] == whole.bins
    assert kept["supernet"].width == whole.width


def test_scores_are_no_losses(tmp_path):
    with RunRecord(tmp_path) as record:
        assert isinstance(record, Reporter)
        record.figures("evolution", 1, {"score": 60.0})
    assert read_record(tmp_path).curves == {}
