"""From records to a population."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcnet.errors import BudgetError, SearchError
from bcnet.prior import Prior, learn_prior, potential_errors, prior_of_errors, select_records
from bcnet.prior.expected_cost import expected_costs
from bcnet.prior.records import _minus_running_mean
from bcnet.prior.sampling import draw, sample_population
from bcnet.space import Budget
from bcnet.space.problem import Problem
from bcnet.testing import toy_space

seeds = st.integers(0, 10_000)


def records(space, rng, count=400, drift=0.0):
    table = np.array([[rng.choice(g.choices) for g in space.groups] for _ in range(count)])
    widest = np.array(space.full)
    losses = 2.0 - (table / widest).mean(axis=1) + 0.01 * rng.normal(size=count) + drift * np.linspace(1, 0, count)
    return np.arange(count), table, losses


@given(seeds, st.floats(1.2, 6.0), st.sampled_from([0.2, 0.5, 0.9]))
@settings(max_examples=15, deadline=None)
def test_rows_are_distributions_within_budget_and_as_spread_as_asked(seed, spread, ratio):
    space = toy_space(10)
    rng = np.random.default_rng(seed)
    errors = [rng.random(len(g.choices)) for g in space.groups]
    prior = prior_of_errors(errors, space, Budget(macs=ratio), effective_widths=spread)
    assert all(row.sum() == pytest.approx(1) and (row >= 0).all() for row in prior.rows)
    for cost in expected_costs(space, prior.budget):
        assert cost(prior.rows) <= 1 + 1e-6
    assert prior.effective_widths == pytest.approx(spread, rel=0.25)


@pytest.mark.slow
@given(seeds, st.sampled_from([Budget(macs=0.3), Budget(params=0.3), Budget(macs=0.5, params=0.2)]))
@settings(max_examples=4, deadline=None)
def test_a_population_is_always_filled_with_distinct_feasible_widths(seed, budget):
    space = toy_space(10)
    rng = np.random.default_rng(seed)
    prior = learn_prior(space, *records(space, rng), budget)
    sample = prior.sample(40, budget, rng)
    assert len(set(sample.widths)) == len(sample.widths) == 40
    assert all(prior.budget.admits(space.cost(w)) for w in sample.widths)


def test_the_population_keeps_its_promises_at_default_settings():
    space = toy_space(20, channels=64, choices=20)
    rng = np.random.default_rng(0)
    sample = learn_prior(space, *records(space, rng), Budget(macs=0.5)).sample(40, Budget(macs=0.5), rng)
    assert sample.within_budget >= 0.3
    assert sample.duplicates <= 0.1
    assert (sample.topped_up, sample.note) == (0, "")


def test_nearly_half_of_the_samples_hold_the_budget_however_skewed_their_costs():
    space = toy_space(6, channels=64, choices=20)
    rng = np.random.default_rng(8)
    errors = [np.sort(rng.random(20))[::-1] for _ in space.groups]
    prior = prior_of_errors(errors, space, Budget(macs=0.9))
    problem = Problem.of(space, Budget(macs=0.9))
    assert problem.feasible(draw(prior.rows, 4000, rng)).mean() >= 0.42
    (cost,) = expected_costs(space, prior.budget)
    assert cost(prior.rows) <= 1


def test_a_sample_of_another_tighter_budget_is_topped_up_and_says_so():
    space = toy_space(10)
    rng = np.random.default_rng(0)
    prior = learn_prior(space, *records(space, rng), Budget(macs=0.9))
    sample = prior.sample(40, Budget(macs=0.03), rng)
    assert len(sample.widths) == 40
    assert sample.topped_up > 0
    assert "random ones near the budget" in sample.note


def test_a_sample_of_a_handful_says_how_many_there_are():
    space = toy_space(10)
    rng = np.random.default_rng(0)
    prior = learn_prior(space, *records(space, rng), Budget(macs=0.5))
    sample = prior.sample(40, Budget(macs=space.cost(space.narrowest).macs), rng)
    assert sample.widths == (space.narrowest,)
    assert "only 1 candidates satisfy the budget" in sample.note


def test_the_prior_survives_json_and_refuses_another_space():
    space = toy_space(6)
    rng = np.random.default_rng(0)
    prior = learn_prior(space, *records(space, rng), Budget(macs=0.5))
    again = Prior.from_dict(json.loads(json.dumps(prior.to_dict())), space)
    assert all((a == b).all() for a, b in zip(prior.rows, again.rows, strict=True))
    assert again.sample(20, Budget(macs=0.5), np.random.default_rng(1)) == prior.sample(
        20, Budget(macs=0.5), np.random.default_rng(1)
    )
    with pytest.raises(SearchError, match="another space"):
        Prior.from_dict(prior.to_dict(), toy_space(7))
    with pytest.raises(SearchError, match="cannot be read"):
        Prior.from_dict({"space": space.fingerprint()}, space)


def test_one_effective_width_is_the_certified_optimum():
    space = toy_space(8)
    errors = [np.random.default_rng(0).random(len(g.choices)) for g in space.groups]
    prior = prior_of_errors(errors, space, Budget(macs=0.4), effective_widths=1)
    assert sum(row.max() < 1 - 1e-9 for row in prior.rows) <= 2
    assert prior.temperature == 0


def test_potential_errors_are_means_and_unused_widths_get_the_worst_of_their_group():
    space = toy_space(2, channels=8, choices=4)  # choices 2, 4, 6, 8
    errors = potential_errors(space, [[2, 8], [2, 6], [4, 7]], [1.0, 2.0, 6.0])
    np.testing.assert_allclose(errors[0], [1.5, 6.0, 6.0, 6.0])
    np.testing.assert_allclose(errors[1], [3.5, 3.5, 2.0, 3.5])  # 7 is as near to 6 as to 8: the wider one


@pytest.mark.parametrize("rule", ["running-mean", "rank"])
def test_fair_rules_do_not_prefer_late_records(rule):
    space = toy_space(4)
    steps, table, losses = records(space, np.random.default_rng(0), count=2000, drift=5.0)
    naive, _ = select_records(steps, table, losses, keep=100, since=0, rule="naive")
    fair, comparable = select_records(steps, table, losses, keep=100, since=0, rule=rule, window=100)
    assert len(fair) == len(comparable) == 100
    assert list(comparable) == sorted(comparable)
    everything = (table / np.array(space.full)).mean(axis=1)
    quality = [(chosen / np.array(space.full)).mean() for chosen in (naive, fair)]
    assert quality[1] > quality[0] + everything.std() / 2


def test_selection_does_not_depend_on_the_order_of_the_records():
    space = toy_space(4)
    rng = np.random.default_rng(0)
    steps, table, losses = records(space, rng)
    shuffled = rng.permutation(len(steps))
    first = select_records(steps, table, losses)
    second = select_records(steps[shuffled], table[shuffled], losses[shuffled])
    np.testing.assert_array_equal(first[0], second[0])


def test_the_default_believes_all_records_of_the_second_half():
    space = toy_space(4)
    steps, table, losses = records(space, np.random.default_rng(0), count=400, drift=5.0)
    chosen, comparable = select_records(steps, table, losses)
    assert sorted(chosen.tolist()) == sorted(table[steps >= 199.5].tolist())
    assert len(comparable) == 200
    everything, _ = select_records(steps, table, losses, since=0)
    assert sorted(everything.tolist()) == sorted(table.tolist())
    one, _ = select_records([7], table[:1], losses[:1])
    assert one.tolist() == table[:1].tolist()


def test_wrong_records_are_refused():
    space = toy_space(3)
    steps, table, losses = records(space, np.random.default_rng(0), count=20)
    with pytest.raises(SearchError, match="at least one step"):
        learn_prior(space, [], np.zeros((0, 3)), [], Budget(macs=0.5))
    with pytest.raises(SearchError, match="record 0 is not"):
        learn_prior(space, steps, table, np.r_[np.nan, losses[1:]], Budget(macs=0.5))
    with pytest.raises(SearchError, match="got 'newest'"):
        select_records(steps, table, losses, rule="newest")
    with pytest.raises(SearchError, match="keep must be at least 1"):
        select_records(steps, table, losses, keep=0)
    with pytest.raises(SearchError, match=r"since must be a share of the training in \[0, 1\); got 1"):
        select_records(steps, table, losses, since=1)
    with pytest.raises(SearchError, match="effective_widths must be at least 1"):
        learn_prior(space, steps, table, losses, Budget(macs=0.5), effective_widths=0.5)
    with pytest.raises(BudgetError, match="narrowest network"):
        learn_prior(space, steps, table, losses, Budget(macs=1))


def test_one_record_is_enough():
    widths = np.array([[1, 2], [3, 4], [5, 6]])
    chosen, _ = select_records(np.arange(3), widths, np.array([0.5, 0.1, 0.9]), keep=1, since=0, rule="naive")
    assert len(chosen) == 1
    with pytest.raises(SearchError, match="keep must be at least 1"):
        select_records(np.arange(3), widths, np.array([0.5, 0.1, 0.9]), keep=0)


@pytest.mark.parametrize("place", ["errors", "rows"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_prior_with_numbers_that_are_none_is_refused(place, value):
    space = toy_space(3)
    document = learn_prior(space, *records(space, np.random.default_rng(0)), Budget(macs=0.5)).to_dict()
    document[place][1][0] = value
    with pytest.raises(SearchError, match="cannot be read"):
        Prior.from_dict(document, space)


def test_the_share_of_duplicates_is_that_of_the_first_draw():
    space = toy_space(2)
    certain = tuple(np.eye(len(group.choices))[0] for group in space.groups)
    problem = Problem.of(space, Budget(macs=1.0))
    sample = sample_population(certain, problem, 10, np.random.default_rng(0))
    assert sample.duplicates == pytest.approx(0.9)  # ten draws of one candidate
    spread = tuple(np.full(len(group.choices), 1 / len(group.choices)) for group in toy_space(8).groups)
    sample = sample_population(spread, Problem.of(toy_space(8), Budget(macs=1.0)), 10, np.random.default_rng(0))
    assert sample.duplicates == 0


@pytest.mark.parametrize("window", [1, 4, 5, 40])
def test_the_running_mean_is_that_of_the_window_around_each_record(window):
    losses = np.random.default_rng(0).normal(2, 1, 30)
    width = min(window, len(losses))
    starts = [min(max(i - width // 2, 0), len(losses) - width) for i in range(len(losses))]
    means = [losses[start : start + width].mean() for start in starts]
    assert _minus_running_mean(losses, window) == pytest.approx(losses - means)
