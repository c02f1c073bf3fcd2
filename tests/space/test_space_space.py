"""Choices, costs, complements and budgets of a width space."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import paper_network

from bcnet.errors import BudgetError, WidthError
from bcnet.space import Budget, Cost, Polynomial, WidthGroup, WidthSpace, floor_choices


def chain(*channels: int, unit: int = 1, min_ratio: float = 0.0) -> WidthSpace:
    """A chain of 1x1 convolutions 3 -> channels -> 10 on one pixel."""
    groups = tuple(
        WidthGroup(f"g{i}", size, unit, floor_choices(size, 20, unit=unit, min_ratio=min_ratio))
        for i, size in enumerate(channels)
    )
    terms = {(0,): 3, (len(channels) - 1,): 10} if len(channels) > 1 else {(0,): 13}
    pairs = {(i, i + 1): 1 for i in range(len(channels) - 1)}
    return WidthSpace(groups, Polynomial(terms | pairs), Polynomial(terms | pairs))


@pytest.mark.parametrize("hundredths", range(1, 101))
def test_a_ratio_of_hundredths_keeps_so_many_of_a_hundred(hundredths: int) -> None:
    assert chain(100, 100).scaled(hundredths / 100) == (hundredths, hundredths)  # 0.29 * 100 is a little less than 29


@given(st.integers(1, 2048), st.integers(1, 40))
def test_choices_follow_the_floor(width: int, count: int) -> None:
    choices = floor_choices(width, count)
    assert choices == tuple(sorted({width * k // count for k in range(1, count + 1)} - {0}))


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 30), st.floats(0, 1), st.sampled_from([1, 2, 8, 16]))
def test_choices_keep_unit_ratio_and_multiple(atoms: int, unit: int, count: int, ratio: float, multiple: int) -> None:
    width = atoms * unit
    choices = floor_choices(width, count, unit=unit, min_ratio=ratio, multiple_of=multiple)
    assert choices[-1] == width
    assert list(choices) == sorted(set(choices))
    assert all(c % unit == 0 and c % multiple == 0 and c >= ratio * width for c in choices[:-1])


def test_choices_reproduce_the_published_widths_of_512() -> None:
    assert {51, 102, 153, 204, 230} <= set(floor_choices(512, 20))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=8), st.integers(0, 2**31))
def test_the_complement_is_an_involution_but_for_full_widths(channels: list[int], seed: int) -> None:
    space = chain(*channels)
    widths = tuple(int(w) for w in np.random.default_rng(seed).integers(1, np.array(channels) + 1))
    complement = space.complement(widths)
    space.check(complement)
    for width, other, full in zip(widths, complement, channels, strict=True):
        assert other == (full if width == full else full - width)
    assert space.complement(complement) == widths


@given(st.lists(st.integers(4, 300), min_size=1, max_size=8), st.integers(0, 2**31))
def test_a_bounded_complement_stays_above_the_smallest_ratio(channels: list[int], seed: int) -> None:
    space = chain(*channels, min_ratio=0.3)
    generator = torch.Generator().manual_seed(seed)
    widths = space.sample(generator)
    assert space.complement(widths) == tuple(f - w or f for f, w in zip(space.full, widths, strict=True))
    complement = space.complement(widths, bounded=True)
    smallest = space.narrowest
    assert all(c + w == f + s for c, w, f, s in zip(complement, widths, space.full, smallest, strict=True))
    assert all(c >= s for c, s in zip(complement, smallest, strict=True))


@pytest.mark.parametrize("name", ["resnet20", pytest.param("efficientnet_b0", marks=pytest.mark.slow)])
def test_many_costs_at_once_equal_one_at_a_time(name: str) -> None:
    _, space, _ = paper_network(name)
    generator = torch.Generator().manual_seed(0)
    candidates = [space.sample(generator) for _ in range(50)]
    macs, params = space.cost(np.array(candidates))
    assert macs.dtype == params.dtype == np.int64
    assert [Cost(int(m), int(p)) for m, p in zip(macs, params, strict=True)] == [space.cost(c) for c in candidates]


@pytest.mark.slow
@given(st.lists(st.integers(1, 200), min_size=1, max_size=6), st.floats(0.01, 1.0))
def test_uniform_is_the_largest_ratio_within_the_budget(channels: list[int], ratio: float) -> None:
    space = chain(*channels)
    limit = Budget(macs=ratio).resolve(space.reference)
    ratios = sorted({w / full for full in channels for w in range(1, full + 1)})
    fitting = [space.scaled(r) for r in ratios if limit.admits(space.cost(space.scaled(r)))]
    if not fitting:
        with pytest.raises(BudgetError, match="narrowest uniform network"):
            space.uniform(macs=ratio)
        return
    assert space.uniform(macs=ratio) == max(fitting, key=lambda w: space.cost(w).macs)


def test_uniform_takes_parameters_and_counts_as_limits_too() -> None:
    _, space, _ = paper_network("resnet20")
    assert space.cost(space.uniform(params=0.25)).params <= 0.25 * space.reference.params
    assert space.cost(space.uniform(macs=10_000_000)).macs <= 10_000_000
    assert space.uniform(macs=1.0) == space.full


CLOSED_FORMS = ["uniform", "balanced", "random", "feasible"]


@pytest.mark.parametrize("form", CLOSED_FORMS)
@pytest.mark.parametrize("budget", [0.5, "macs=0.5", {"macs": 0.5}])
def test_only_a_budget_is_a_budget(form: str, budget: object) -> None:
    with pytest.raises(BudgetError, match=r"a budget must be a bcnet.Budget; got .*: write Budget\(macs=0.5\)"):
        getattr(chain(8, 8), form)(budget)


@pytest.mark.parametrize("form", CLOSED_FORMS[:3])
def test_a_budget_and_limits_beside_it_are_refused(form: str) -> None:
    with pytest.raises(BudgetError, match=r"give either a budget or macs= and params=; got .* and macs=0.1"):
        getattr(chain(8, 8), form)(Budget(macs=0.5), macs=0.1)


def test_nearest_rounds_to_a_choice() -> None:
    space = chain(64)
    assert space.nearest((61,)) == (60,)
    assert space.nearest((62,)) == (64,)
    assert space.nearest((64,)) == (64,)
    for wrong in ((1, 2), 64, "64"):
        with pytest.raises(WidthError, match="one number per group, 1; got"):
            space.nearest(wrong)


def test_sampling_is_uniform_and_a_function_of_the_generator() -> None:
    space = chain(40, 7)
    draws = [space.sample(torch.Generator().manual_seed(s)) for s in range(400)]
    assert draws == [space.sample(torch.Generator().manual_seed(s)) for s in range(400)]
    for g, group in enumerate(space.groups):
        counts = np.array([sum(d[g] == c for d in draws) for c in group.choices])
        expected = len(draws) / len(group.choices)
        assert ((counts - expected) ** 2 / expected).sum() < 3 * len(counts) + 30


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((1,), "one entry per group, 2 here; got 1"),
        ((0, 1), r"group 'g0' must be an int in \[2, 8\], a multiple of 2; got 0"),
        ((3, 2), "multiple of 2; got 3"),
        ((10, 2), "got 10"),
        ((2.0, 2), "got 2.0"),
        (0.5, "one int per group; got 0.5: space.uniform"),
        ({"g0": 2, "g1": 2}, "one int per group; got {'g0'"),
        ("2 2", "one int per group; got '2 2'"),
        ((True, 2), "got True"),
        (np.array([[2, 2], [2, 9]]), "group 'g1'.*got 9"),
        (np.array([[2.0, 2.0]]), "integer array"),
        (np.array([[2, 2, 2]]), r"\(candidates, 2\)"),
    ],
)
def test_widths_that_do_not_belong_say_so(widths: object, message: str) -> None:
    with pytest.raises(WidthError, match=message):
        chain(8, 8, unit=2).cost(widths)


@pytest.mark.parametrize("choices", [{"num_choices": 0}, {"min_ratio": 1.5}, {"multiple_of": 0}, {"num_choices": 2.5}])
def test_choice_settings_out_of_range_say_so(choices: dict[str, float]) -> None:
    with pytest.raises(WidthError, match=f"{next(iter(choices))} must be .*got"):
        WidthSpace.trace(torch.nn.Identity(), torch.zeros(2, 3), **choices)


def test_own_choices_replace_the_grid_and_are_checked() -> None:
    space = chain(8, 8).with_choices({"g1": [4, 2]})
    assert space.groups[1].choices == (2, 4)
    assert space.groups[0].choices == chain(8).groups[0].choices
    with pytest.raises(WidthError, match="no group is named"):
        space.with_choices({"gx": [1]})
    with pytest.raises(WidthError, match="multiples of 1, 1 to 8; got"):
        space.with_choices({"g0": [9]})


def test_fingerprints_tell_spaces_apart() -> None:
    prints = {
        chain(8, 8).fingerprint(),
        chain(8, 9).fingerprint(),
        chain(8, 8).with_choices({"g0": [4, 8]}).fingerprint(),
    }
    assert len(prints) == 3
    assert chain(8, 8).fingerprint() == chain(8, 8).fingerprint()


@pytest.mark.parametrize("value", [0.0, -0.5, 1.6, float("nan"), float("inf"), 0, -3, True, None.__class__, "1.6"])
@pytest.mark.parametrize("kind", ["macs", "params"])
def test_budgets_out_of_range_say_so(kind: str, value: object) -> None:
    with pytest.raises(BudgetError, match=rf"budget {kind} must be a ratio \(float\) in \(0, 1.5\].*got"):
        Budget(**{kind: value})


def test_a_budget_needs_a_limit() -> None:
    with pytest.raises(BudgetError, match="at least one limit"):
        Budget()


def test_a_budget_below_the_narrowest_network_names_its_cost() -> None:
    space = chain(100, 100)
    cheapest = space.cost(space.narrowest).macs
    with pytest.raises(BudgetError, match=f"narrowest network of the space, {cheapest:,} MACs"):
        space.feasible(Budget(macs=cheapest - 1))
    assert space.feasible(Budget(macs=cheapest)).macs == cheapest


def test_budgets_limit_both_costs() -> None:
    budget = Budget(macs=0.5, params=10).resolve(Cost(100, 100))
    assert (budget.macs, budget.params) == (50, 10)
    assert budget.admits(Cost(50, 10))
    assert not budget.admits(Cost(51, 10))
    assert budget.admits(Cost(np.array([50, 51, 1]), np.array([10, 1, 11]))).tolist() == [True, False, False]
    assert "0.5x MACs and 10 parameters" in str(Budget(macs=0.5, params=10))
