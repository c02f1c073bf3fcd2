"""Every searcher of ours passes the suite that ships for anybody's."""

import math

import numpy as np
import pytest

from bcnet.prior import prior_of_errors
from bcnet.prior.prior import Prior
from bcnet.searchers import Evolution, Greedy, ModelBased, PriorOnly, Random, Searcher
from bcnet.space import Budget, WidthSpace
from bcnet.testing import SEARCHER_CHECKS
from bcnet.testing.searchers import same_result_in_another_process, takes_150_groups


def make_prior(space: WidthSpace, budget: Budget) -> Prior:
    rng = np.random.default_rng(5)
    errors = [rng.random(len(group.choices)) for group in space.groups]
    return prior_of_errors(errors, space, budget)


def make_evolution(space: WidthSpace, budget: Budget, evaluations: int) -> Searcher:
    population = min(evaluations, 20)
    return Evolution(population=population, generations=evaluations // population, parents=5)


def make_evolution_with_prior(space: WidthSpace, budget: Budget, evaluations: int) -> Searcher:
    population = min(evaluations, 20)
    return Evolution(
        population=population, generations=evaluations // population, parents=5, prior=make_prior(space, budget)
    )


def make_greedy(space: WidthSpace, budget: Budget, evaluations: int) -> Searcher:
    return Greedy(evaluations=evaluations)


def make_random(space: WidthSpace, budget: Budget, evaluations: int) -> Searcher:
    return Random(evaluations=evaluations)


def make_prior_only(space: WidthSpace, budget: Budget, evaluations: int) -> Searcher:
    return PriorOnly(make_prior(space, budget), evaluations=evaluations)


def make_model_based(space: WidthSpace, budget: Budget, evaluations: int) -> Searcher:
    return ModelBased(evaluations=evaluations)


MAKERS = (
    *(make_evolution, make_evolution_with_prior, make_greedy),
    *(make_random, make_prior_only, make_model_based),
)
STARTED = (make_evolution_with_prior,)  # starting a process for each takes longer than all the rest


def case(make, check):
    slow = check is same_result_in_another_process and make not in STARTED
    slow |= check is takes_150_groups and make is make_model_based  # solves for each candidate that it proposes
    name = f"{make.__name__.removeprefix('make_')}-{check.__name__}"
    return pytest.param(make, check, id=name, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(("make", "check"), [case(make, check) for make in MAKERS for check in SEARCHER_CHECKS])
def test_searcher_conforms(make, check):
    check(make)


def test_default_evolution_scores_2000_candidates():
    assert Evolution().limit == 2000
    assert math.isclose(Evolution().population * Evolution().generations, 2000)
