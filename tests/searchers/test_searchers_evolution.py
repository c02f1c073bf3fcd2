"""Evolution uses what it is given: the prior first, then children of the best."""

import numpy as np
import pytest

from bcnet.prior import prior_of_errors
from bcnet.searchers import Evolution, search_widths
from bcnet.space import Budget
from bcnet.space.problem import Problem
from bcnet.testing import toy_space
from bcnet.testing.searchers import smooth_score

HALF = Budget(macs=0.5)


@pytest.mark.parametrize("seed", range(3))
def test_the_first_generation_is_the_priors(seed):
    space = toy_space(6)
    errors = [np.linspace(g % 3, 1, len(group.choices)) for g, group in enumerate(space.groups)]
    prior = prior_of_errors(errors, space, HALF, seed=seed)
    searcher = Evolution(12, 3, 4, prior)
    found = search_widths(space, smooth_score, HALF, searcher=searcher, seed=seed)
    expected = prior.sample(12, Problem.of(space, HALF).budget, np.random.default_rng([seed, 1])).widths
    assert tuple(c.widths for c in found.evaluations[:12]) == expected
    without = search_widths(space, smooth_score, HALF, searcher=Evolution(12, 3, 4), seed=seed)
    assert tuple(c.widths for c in without.evaluations[:12]) != expected


@pytest.mark.parametrize("seed", range(5))
def test_children_have_the_widths_of_their_parents(seed):
    """Without mutation a child takes every group from one of the retained; without crossover there are no children."""

    def inherited(crossover):
        """The share of later candidates whose every group has a width that an earlier one had."""
        space = toy_space(12, channels=64, choices=20)
        searcher = Evolution(10, 3, 5, crossover=crossover, mutation=0.0)
        found = search_widths(space, smooth_score, HALF, searcher=searcher, seed=seed).evaluations
        first = [set(column) for column in zip(*(c.widths for c in found[:10]), strict=True)]
        parents = {c.widths for c in found[:10]}
        children = [c.widths for c in found[10:20]]
        mixed = [all(w in had for w, had in zip(child, first, strict=True)) for child in children]
        assert not parents & set(children)
        return float(np.mean(mixed))

    assert inherited(1.0) >= 0.9
    assert inherited(0.0) <= 0.3


def test_crossover_is_usual():
    assert 0.8 <= Evolution().crossover <= 1.0
    assert Evolution().mutation is None
