"""What processes share: parts, sums, decisions of rank 0, and calls that are spread over them."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bcnet.distributed import ProcessGroup, join_processes
from bcnet.errors import ProcessError, RunError, SearchError


class OfSize(ProcessGroup):
    def __init__(self, rank, size):
        self.rank, self.size = rank, size


@given(st.integers(0, 50), st.integers(1, 9))
def test_parts_are_the_whole_in_order_and_as_equal_as_can_be(count, size):
    parts = [range(count)[OfSize(rank, size).part(count)] for rank in range(size)]
    assert list(itertools.chain(*parts)) == list(range(count))
    lengths = [len(part) for part in parts]
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


def test_without_torchrun_there_is_one_process(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with join_processes() as world:
        assert (world.rank, world.size, world.is_rank_zero) == (0, 1, True)
        tensor = torch.arange(3.0)
        world.add_up(tensor)
        assert tensor.tolist() == [0, 1, 2]
        assert world.on_rank_zero(lambda: 3) == 3
        assert world.gather("a") == ["a"]
        assert list(world.map(str, [1, 2])) == ["1", "2"]
        assert world.tensors_from_rank_zero(lambda: None) is None
        world.check_same({"thing": "a"})
    assert not torch.distributed.is_initialized()


def test_half_an_environment_is_no_torchrun(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with join_processes() as world:
        assert world.size == 1


def everything(world):
    tensor = torch.full((2,), float(world.rank + 1))
    world.add_up(tensor)
    seen = world.on_rank_zero(lambda: {"rank": world.rank, "float": 0.1 + 0.2, "text": "ü", "none": None})
    given = {"a": torch.full((2, 3), float(world.rank)), "b": torch.tensor(world.rank, dtype=torch.int32)}
    loaded, state = world.tensors_from_rank_zero(lambda: (given, {"step": world.rank}))
    return {
        "rank": world.rank,
        "sum": tensor.tolist(),
        "lead": seen,
        "gathered": world.gather([world.rank, None]),
        "tensors": {name: tensor.tolist() for name, tensor in loaded.items()},
        "types": {name: str(tensor.dtype) for name, tensor in loaded.items()},
        "state": state,
        "nothing": world.tensors_from_rank_zero(lambda: None),
    }


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_get_what_the_lead_has(processes, size):
    found = processes.run(size, everything)
    assert [each.pop("rank") for each in found] == list(range(size))
    assert (
        found
        == [
            {
                "sum": [size * (size + 1) / 2] * 2,
                "lead": {"rank": 0, "float": 0.1 + 0.2, "text": "ü", "none": None},
                "gathered": [[rank, None] for rank in range(size)],
                "tensors": {"a": [[0.0] * 3] * 2, "b": 0},
                "types": {"a": "torch.float32", "b": "torch.int32"},
                "state": {"step": 0},
                "nothing": None,
            }
        ]
        * size
    )


def failing_rank_zero(world, kind):
    def fail():
        raise {"ours": RunError, "bug": ZeroDivisionError}[kind]("the disk is full")

    world.on_rank_zero(fail)


def test_what_the_lead_raises_is_raised_everywhere(processes):
    lead, *others = processes.run(3, failing_rank_zero, "ours")
    assert [type(error) for error in (lead, *others)] == [RunError] * 3
    assert {str(error) for error in (lead, *others)} == {"the disk is full"}
    assert sorted(error.repeated for error in (lead, *others)) == [False, True, True]  # one is to be shown
    lead, other = processes.run(2, failing_rank_zero, "bug")
    assert type(lead) is ZeroDivisionError
    assert type(other) is ProcessError
    assert "failed with ZeroDivisionError: the disk is full" in str(other)


def differing(world):
    world.check_same({"seed": 3, "model": "abc" if world.rank < 2 else "abd"})


def test_processes_that_differ_are_told_so(processes):
    assert processes.run(2, differing) == [None, None]
    for error in processes.run(3, differing):
        assert isinstance(error, ProcessError)
        assert "the same model; process 0 has 'abc', process 2 has 'abd'" in str(error)


def mapped(world, count, slow):
    """Squares, and which process computed which, where process 0 is stuck in its first call until all else is done."""
    import time

    computed = []

    def square(number):
        if slow and not computed and world.rank == 0:
            computed.append(number)
            while world._store.add("0/taken", 0) < count + world.size - 1:  # all others have found nothing left
                time.sleep(0.001)
        else:
            computed.append(number)
        return {"square": number**2}

    results = [found["square"] for found in world.map(square, range(count))]
    return results, computed


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_calls_are_spread_and_come_back_in_order(processes, size, count):
    found = processes.run(size, mapped, count, False)
    assert all(results == [n**2 for n in range(count)] for results, _ in found)
    assert sorted(itertools.chain(*(computed for _, computed in found))) == list(range(count))


def test_a_slow_call_holds_up_no_other(processes):
    (results, first), (_, second) = processes.run(2, mapped, 12, True)
    assert results == [n**2 for n in range(12)]
    assert len(first) <= 1  # none if the other process was so fast that it took them all
    assert len(second) >= 11


def failing_calls(world, bad):
    seen = []

    def call(number):
        if number in bad:
            raise SearchError(f"the score of widths ({number},) failed")
        return number

    try:
        for value in world.map(call, range(8)):
            seen.append(value)
    except SearchError as error:
        return seen, str(error), world.gather("still here")
    return None


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_first_failure_in_order_is_raised_everywhere_and_nobody_hangs(processes, size):
    expected = ([0, 1, 2], "the score of widths (3,) failed", ["still here"] * size)
    assert processes.run(size, failing_calls, (5, 3)) == [expected] * size


def two_uses(world):
    with join_processes() as again:
        first = again.gather(world.rank)
    with join_processes() as again:
        return first + again.gather(10 * world.rank) + world.gather(7)


def test_uses_of_one_group_do_not_meet(processes):
    assert processes.run(2, two_uses) == [[0, 1, 0, 10, 7, 7]] * 2
