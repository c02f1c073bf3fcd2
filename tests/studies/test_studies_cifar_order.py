"""Every method of the CIFAR table has its place in the summary."""

from studies.cifar.__main__ import METHODS, OTHERS
from studies.cifar.summary import ORDER


def test_every_method_has_its_place_in_the_summary():
    assert {*METHODS, *OTHERS, "original"} == set(ORDER)
    assert len(ORDER) == len(set(ORDER))
