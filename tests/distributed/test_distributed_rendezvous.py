"""Starts of a run on one store, which keeps what earlier starts wrote."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore

from bcnet.distributed.launch import own_rendezvous
from bcnet.errors import ProcessError


def start(store, size, ranks=None):
    """What the processes of one start, here threads, agree on."""
    with ThreadPoolExecutor(size) as pool:
        ranks = range(size) if ranks is None else ranks
        return [call.result() for call in [pool.submit(own_rendezvous, store, rank, size, 20.0) for rank in ranks]]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_start_has_a_name_of_its_own(size):
    store = HashStore()
    names = [start(store, size) for _ in range(4)]
    assert all(len(set(agreed)) == 1 for agreed in names)
    assert len({agreed[0] for agreed in names}) == 4


def test_the_dead_take_part_in_nothing():
    store = HashStore()
    store.set("hello/1", "a word of the dead")
    store.set("answer/a word of the dead", "a name of theirs")
    store.set("here/a name of theirs/1", "1")
    late_last, late_first = start(store, 3, (0, 2, 1)), start(store, 3, (2, 1, 0))
    assert len(set(late_last)) == len(set(late_first)) == 1
    assert "a name of theirs" not in (late_last[0], late_first[0])


@pytest.mark.parametrize(("rank", "message"), [(0, "processes 1 of 2 did not come"), (1, "process 0 did not come")])
def test_who_waits_in_vain_says_for_whom(rank, message):
    with pytest.raises(ProcessError, match=message):
        own_rendezvous(HashStore(), rank, 2, 0.05)
