import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_supernet import TinyBatches, TinySupernet, make_space
from torch.nn import functional

from bcnet.errors import TrainingError
from bcnet.space import Side
from bcnet.train import (
    Bilateral,
    BoundedComplementary,
    ChannelCounts,
    Complementary,
    Path,
    Recipe,
    Sandwich,
    SupernetLearner,
    Term,
    Unilateral,
    UnilateralComplementary,
    accumulate_gradients,
)
from bcnet.train.objective import Objective

integers_of = st.lists(st.integers(1, 40), min_size=1, max_size=4).flatmap(
    lambda full: st.tuples(
        st.just(full), st.lists(st.tuples(*[st.integers(1, width) for width in full]), min_size=1, max_size=12)
    )
)


@given(integers_of)
@settings(deadline=None)
def test_complementary_trains_every_channel_of_a_group_equally(case):
    full, drawn = case
    space = make_space(*full)
    counts = ChannelCounts(space)
    for widths in drawn:
        counts.add(Complementary().terms(space, widths))
    assert (counts.spread() == 0).all()
    expected = [sum(4 if widths[g] == full[g] else 2 for widths in drawn) for g in range(len(full))]
    assert [int(of[0]) for of in counts.of] == expected


@pytest.mark.parametrize(
    "strategy", [Unilateral(), Unilateral(draws=3), Bilateral(draws=2), UnilateralComplementary(draws=2)]
)
def test_the_other_strategies_are_not_fair(strategy):
    space = make_space(64, 30)
    counts = ChannelCounts(space)
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        counts.add(strategy.plan(space, generator))
    assert (counts.spread() > 0).all()


def test_draws_make_steps_of_equally_many_paths():
    space = make_space(64, 30)
    four_paths = (Complementary(), Bilateral(draws=2), Unilateral(draws=4), UnilateralComplementary(draws=2))
    for strategy in four_paths:
        terms = strategy.plan(space, torch.Generator().manual_seed(0))
        assert sum(len(term.paths) for term in terms) == 4
        assert len({term.recorded for term in terms}) == len(terms)
    with pytest.raises(TrainingError, match="an int of at least 1; got 0"):
        Bilateral(draws=0)


def test_left_only_favours_the_first_channels():
    space = make_space(20)
    counts = ChannelCounts(space)
    for width in range(1, 21):
        counts.add(Unilateral().terms(space, (width,)))
    assert counts.of[0].tolist() == [20 - i for i in range(20)]  # l - i + 1, counted from 1


def test_both_sides_over_all_widths_count_l_plus_one():
    space = make_space(20)
    counts = ChannelCounts(space)
    for width in range(1, 21):
        counts.add(Bilateral().terms(space, (width,)))
    assert counts.of[0].tolist() == [21] * 20


def test_with_a_smallest_width_the_bounded_spread_is_what_the_overlap_gives():
    space = make_space(20, min_ratio=0.2)  # c_min = 4: the two paths overlap in 4 channels
    counts = ChannelCounts(space)
    counts.add(BoundedComplementary().terms(space, (10,)))
    assert counts.of[0].tolist() == [2] * 6 + [3] * 4 + [3] * 4 + [2] * 6


@given(st.integers(2, 200), st.floats(0, 1), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_with_a_smallest_width_every_channel_is_still_trained_equally_often(width, ratio, seed):
    space = make_space(width, max(2, width // 3), min_ratio=ratio)
    counts, generator = ChannelCounts(space), torch.Generator().manual_seed(seed)
    for _ in range(7):
        terms = Complementary().plan(space, generator)
        assert all(w >= c for w, c in zip(terms[0].recorded, space.narrowest, strict=True))
        counts.add(terms)
    for of_group in counts.of:
        assert len(set(of_group.tolist())) == 1


def test_the_bounded_complement_is_as_unfair_as_none():
    space = make_space(100, min_ratio=0.2)
    shares = []
    for strategy in (BoundedComplementary(), Bilateral()):
        counts = ChannelCounts(space)
        for width in space.groups[0].choices:
            counts.add(strategy.terms(space, (width,)))
        shares.append(float(counts.of[0].min() / counts.of[0].max()))
    assert all(0.7 < share < 0.9 for share in shares)


def test_the_complement_runs_exactly_and_is_recorded_at_the_nearest_choice():
    space = make_space(64)
    direct, other = Complementary().terms(space, (3,))
    assert direct == Term((3,), (Path((3,), Side.LEFT), Path((3,), Side.RIGHT)))
    assert other.paths == (Path((61,), Side.LEFT), Path((61,), Side.RIGHT))
    assert other.recorded == (60,)


def test_full_widths_are_their_own_complement():
    direct, other = Complementary().terms(make_space(8), (8,))
    assert direct == other


def losses_of(supernet, x, y):
    return lambda paths: [functional.cross_entropy(supernet(x, path.widths, path.side), y) for path in paths]


@pytest.mark.parametrize("strategy", [Complementary(), Bilateral(), Unilateral(2), UnilateralComplementary()])
def test_the_gradient_is_that_of_the_summed_objective(tiny_supernet, tiny_batches, strategy):
    tiny_supernet.eval()
    x, y = tiny_batches.x, tiny_batches.y
    losses = losses_of(tiny_supernet, x, y)
    terms = strategy.plan(tiny_supernet.space, torch.Generator().manual_seed(3))
    means = accumulate_gradients(terms, losses)
    got = [parameter.grad.clone() for parameter in tiny_supernet.parameters()]
    objective = sum(sum(losses(term.paths)) / len(term.paths) for term in terms)
    expected = torch.autograd.grad(objective, list(tiny_supernet.parameters()))
    for mine, reference in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, reference)
    assert float(means.sum()) == pytest.approx(float(objective.detach()), rel=1e-6)


def test_gradients_reach_exactly_the_counted_channels(tiny_supernet, tiny_batches):
    tiny_supernet.eval()
    terms = (Term((2, 3), (Path((2, 3), Side.LEFT), Path((1, 2), Side.RIGHT))),)
    counts = ChannelCounts(tiny_supernet.space)
    counts.add(terms)
    accumulate_gradients(terms, losses_of(tiny_supernet, tiny_batches.x, tiny_batches.y))
    for layer, counted in ((tiny_supernet.first, counts.of[0]), (tiny_supernet.second, counts.of[1])):
        touched = layer.weight.grad.flatten(1).abs().sum(1).numpy() > 0
        assert not (touched & (counted == 0)).any()
    assert np.array_equal(counts.of[0] > 0, [True, True, False, False, False, True])


def test_the_sandwich_has_both_ends_and_the_full_width_first():
    space = make_space(64, 30)
    terms = Sandwich().plan(space, torch.Generator().manual_seed(0))
    paths = [path for term in terms for path in term.paths]
    assert [len(term.paths) for term in terms] == [1, 1, 1, 1]
    assert {path.side for path in paths} == {Side.LEFT}
    assert [path.widths for path in paths[:2]] == [space.full, space.narrowest]
    assert Sandwich().teacher(space) == paths[0]
    generator = torch.Generator().manual_seed(0)
    assert [path.widths for path in paths[2:]] == [space.sample(generator), space.sample(generator)]
    for strategy in (Complementary(), Bilateral(), Unilateral()):
        assert strategy.teacher(space) is None


def test_the_others_learn_what_the_full_width_gives():
    net, batches = TinySupernet().eval(), TinyBatches()
    x, y = batches.x[:8], batches.y[:8]
    learner = SupernetLearner(net, Sandwich())
    recipe = Recipe(lr=0.1, batch_size=len(y), epochs=1, label_smoothing=0.1)
    objective = Objective(learner, recipe, "fp32", x, y)
    full, narrow = net.space.full, net.space.narrowest
    terms = learner.plan(torch.Generator().manual_seed(0))
    losses = accumulate_gradients(terms, objective, passes=learner.passes)
    gradients = {name: parameter.grad.clone() for name, parameter in net.named_parameters()}
    net.zero_grad()
    taught = net(x, full, Side.LEFT)
    by_labels = functional.cross_entropy(taught, y, label_smoothing=0.1)
    by_teacher = [
        functional.kl_div(
            net(x, term.paths[0].widths, Side.LEFT).log_softmax(1), taught.detach().softmax(1), reduction="batchmean"
        )
        for term in terms[1:]
    ]
    torch.testing.assert_close(losses, torch.stack([by_labels, *by_teacher]).detach())
    sum([by_labels, *by_teacher]).backward()
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)
    assert terms[1].paths[0].widths == narrow
