"""A measure from outside the package, through every room that has to do with costs, and what budgets refuse."""

import json
import sqlite3
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
import pytest
import tiny_job

import bcnet
from bcnet import Budget, Measure
from bcnet.costs import MACS, PARAMS, Cost
from bcnet.prior import learn_prior, prior_of_errors, solve
from bcnet.prior.expected_cost import ExpectedCost
from bcnet.report.evidence import read_evidence
from bcnet.run.status import read_status
from bcnet.testing import toy_space


@dataclass(frozen=True)
class Weighted(Measure):
    """Multiply-adds, those of one layer counted several times: what a slow operator would cost."""

    name: ClassVar[str] = "weighted"
    unit: ClassVar[str] = "weighted MACs"
    layer: int = 0
    factor: int = 3

    def terms(self, space):
        total = space.macs_terms
        for _ in range(self.factor - 1):
            total = total + space.layers[self.layer].macs
        return total

    def values(self, space, widths):
        return self.terms(space)(widths)

    def constraints(self, space):
        return (self.terms(space),)


@dataclass(frozen=True)
class Steps(Measure):
    """A measure that is no polynomial: whole blocks of eight channels of every group, as hardware counts them."""

    name: ClassVar[str] = "blocks"
    unit: ClassVar[str] = "blocks"

    def values(self, space, widths):
        return -(-widths // 8).sum(axis=1)

    def constraints(self, space):
        return ({(g,): np.ceil(np.array(group.choices) / 8) for g, group in enumerate(space.groups)},)


def test_macs_and_parameters_are_measures_like_any_other():
    space = toy_space(3)
    widths = np.array([space.full, space.narrowest])
    assert MACS.values(space, widths).tolist() == space.cost(widths).macs.tolist()
    assert PARAMS.values(space, widths).tolist() == space.cost(widths).params.tolist()
    assert MACS.text(1_500) == "1,500 MACs"


def test_a_budget_on_a_measure_of_ones_own_reads_as_it_was_written():
    budget = Budget({Steps(): 6}, macs=0.5)
    assert str(budget) == "0.5x MACs and 6 blocks"
    assert budget == Budget({Steps(): 6}, macs=0.5)
    assert budget != Budget({Steps(): 7}, macs=0.5)
    assert eval(repr(budget)) == budget
    with pytest.raises(AttributeError, match="does not change"):
        budget.limits = {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Budget({"blocks": 3}), r"a mapping of bcnet.Measure to limit; got \{'blocks': 3\}"),
        (lambda: Budget({Steps(): 0}), r"budget blocks must be a ratio .* or a positive count \(int\); got 0"),
        (
            lambda: Budget({Weighted(): 0.5, Weighted(factor=2): 0.5}),
            "limits each measure once; got weighted, weighted",
        ),
    ],
)
def test_wrong_budgets_say_what_is_wrong(wrong, message):
    with pytest.raises(bcnet.errors.BudgetError, match=message):
        wrong()


def test_a_ratio_that_comes_to_less_than_a_whole_unit_is_refused():
    original = Cost(1, 1, {"blocks": 1.5})  # of a measure with fractions: a limit of 1 would be none of 0.75
    with pytest.raises(bcnet.errors.BudgetError, match=r"0\.5 of the original's 1\.5 blocks is less than 1: .* finer"):
        Budget({Steps(): 0.5}).resolve(original)
    assert Budget({Steps(): 0.7}).resolve(original).limits == {Steps(): 1}


def test_the_narrowest_network_names_the_measure_that_it_breaks():
    with pytest.raises(bcnet.errors.BudgetError, match=r"3 blocks \(.* and 0.25x of the original\); got 2 blocks"):
        toy_space(3).feasible(Budget({Steps(): 2}))


@pytest.mark.parametrize("budget", [Budget({Steps(): 7}), Budget({Steps(): 0.6}, macs=0.7)])
def test_the_priors_expectation_and_every_candidate_satisfy_the_limit(budget):
    space = toy_space(4)
    rng = np.random.default_rng(0)
    errors = [rng.random(len(group.choices)) for group in space.groups]
    counted = space.with_measures(budget)
    assert counted == space  # what is told beside is no part of the space
    limits = counted.feasible(budget)
    prior = prior_of_errors(errors, space, budget)
    for measure, limit in limits.limits.items():
        for part in measure.constraints(space):
            assert ExpectedCost.of(part, space, limit)(prior.rows) <= 1 + 1e-6
    best = min(
        sum(float(e[g.choices.index(w)]) for e, g, w in zip(errors, space.groups, widths, strict=True))
        for widths in product(*(g.choices for g in space.groups))
        if limits.admits(counted.cost(widths))
    )
    assert solve(errors, space, budget).lower_bound <= best + 1e-9
    for searcher in (bcnet.Evolution(8, 5, 4, prior), bcnet.searchers.Random(30), bcnet.searchers.PriorOnly(prior, 20)):
        found = bcnet.searchers.search_widths(space, lambda widths: float(sum(widths)), budget, searcher=searcher)
        assert all(limits.admits(c.cost) for c in found.evaluations)
        assert all(c.cost.others["blocks"] == sum(-(-w // 8) for w in c.widths) for c in found.evaluations)


def test_uniform_uses_up_the_limit_of_any_measure():
    space = toy_space(3)
    widths = space.uniform(Budget({Steps(): 6}))
    assert widths == (16, 16, 16)


def test_a_run_with_a_measure_of_ones_own_from_end_to_end(tmp_path):
    budget = Budget({Weighted(layer=1): 0.5}, macs=0.9)
    outcome = tiny_job.tiny_search(tmp_path / "run", budget=budget, report=True)
    space = outcome.found.budget
    limit = space.limits[Weighted(layer=1)]
    searched = outcome.result.networks["searched"]
    assert searched.others["weighted"] <= limit < outcome.result.networks["original"].others["weighted"]
    assert outcome.result.networks["uniform"].others["weighted"] <= limit
    assert outcome.result.budget.others == {Weighted(layer=1, factor=3).description: limit}
    assert outcome.result.budget.given == "0.9x MACs and 0.5x weighted MACs"
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert settings["limits"] == {"macs": 0.9, 'weighted {"factor": 3, "layer": 1}': 0.5}
    with sqlite3.connect(tmp_path / "run" / "evaluations.sqlite") as connection:
        rows = connection.execute("SELECT others FROM evaluations").fetchall()
    connection.close()
    assert all(json.loads(others)["weighted"] <= limit for (others,) in rows)
    status = read_status(tmp_path / "run")
    assert status.state == "finished"
    assert status.best is not None
    evidence = read_evidence(tmp_path / "run")
    assert evidence.front
    assert f"{searched.others['weighted']:,}" in (tmp_path / "run" / "report.html").read_text()


def test_a_run_goes_on_with_the_same_measure_and_refuses_another(tmp_path):
    class StopHere(tiny_job.Recorder):
        pass

    with pytest.raises(tiny_job.StoppedError):
        tiny_job.tiny_search(tmp_path, budget=Budget({Weighted(): 0.5}), reporter=StopHere(("trials", 5)))
    with pytest.raises(bcnet.errors.RunError, match=r"holds a run of another configuration: limits\.weighted"):
        tiny_job.tiny_search(tmp_path, budget=Budget({Weighted(factor=2): 0.5}))
    resumed = tiny_job.tiny_search(tmp_path, budget=Budget({Weighted(): 0.5}))
    whole = tiny_job.tiny_search(tmp_path.with_name("whole"), budget=Budget({Weighted(): 0.5}))
    assert resumed.found == whole.found


def test_costs_of_many_are_the_costs_of_each():
    many = Cost(np.array([1, 2]), np.array([3, 4]), {"blocks": np.array([5, 6])})
    assert list(many.each()) == [Cost(1, 3, {"blocks": 5}), Cost(2, 4, {"blocks": 6})]


def test_learning_a_prior_writes_and_reads_the_measures_it_is_for():
    space = toy_space(3).with_measures(Budget({Steps(): 7}))
    widths = [tuple(g.choices[i] for g in space.groups) for i in range(8)]
    prior = learn_prior(space, range(8), widths, [1 / sum(w) for w in widths], Budget({Steps(): 7}), since=0)
    assert bcnet.prior.Prior.from_dict(prior.to_dict(), space).budget == Budget({Steps(): 7})
