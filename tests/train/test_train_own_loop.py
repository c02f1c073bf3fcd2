"""Steps in a loop of somebody's own: the gradients, draws and records of every training here, whatever the batches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_job import TinyNetwork
from torch import nn
from torch.nn import functional

import bcnet
from bcnet.errors import RunError, TrainingError, WidthError
from bcnet.searchers import Evolution, search_widths
from bcnet.space import Side, WidthSpace
from bcnet.train import STRATEGIES, Bilateral, Sandwich, derived_generator


class Weighted(TinyNetwork):
    """Has a method of its own, takes a keyword, and gives a dict."""

    def forward(self, x, scale=1.0):
        return {"logits": scale * super().forward(x)}

    def penalty(self):
        return self.first[0].weight.square().sum()


@pytest.fixture(scope="module")
def space():
    return WidthSpace.trace(Weighted(), torch.zeros(2, 1, 8, 8))


def supernet_of(space, seed=0):
    torch.manual_seed(seed)
    network = Weighted()
    network.second[3].p = 0.0
    return bcnet.Supernet(network, space)


def batches(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for number in range(count):
        labels = torch.randint(3, (12,), generator=generator)
        x = torch.randn(12, 1, 8, 8, generator=generator) * 0.3
        x[labels == 1, :, ::2] += 1
        x[labels == 2, :, :, ::2] += 1
        yield {"x": x, "label": labels, "scale": 1.0 + number % 2}


def loss(network, batch):
    outputs = network(batch["x"], scale=batch["scale"])
    return functional.cross_entropy(outputs["logits"], batch["label"]) + 1e-3 * network.penalty()


@given(st.sampled_from([name for name in STRATEGIES if name != "sandwich"]), st.integers(0, 50), st.integers(0, 99))
def test_gradients_are_the_sum_over_terms_of_means_over_paths(space, name, step, seed):
    supernet, strategy = supernet_of(space), STRATEGIES[name]()
    steps = bcnet.SupernetSteps(supernet, strategy, seed=seed)
    steps.step = step
    (batch,) = batches(1)
    value = steps.backward(lambda network: loss(network, batch))
    found = [p.grad.clone() for p in supernet.parameters()]
    supernet.zero_grad()
    total, means = 0.0, []
    for term in strategy.plan(space, derived_generator(seed, "own loop", "widths", step)):
        paths = []
        for path in term.paths:
            with supernet.at(path.widths, path.side) as network:
                paths.append(loss(network, batch))
        means.append(torch.stack(paths).mean())
        total = total + means[-1]
    total.backward()
    for parameter, gradient in zip(supernet.parameters(), found, strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-6)
    means = [mean.detach() for mean in means]
    torch.testing.assert_close(value, torch.stack(means).mean())
    assert not value.requires_grad
    assert steps.records.losses == pytest.approx(torch.stack(means).tolist(), rel=1e-5)


def trained(supernet, steps, count, start=0):
    optimizer = torch.optim.SGD(supernet.parameters(), lr=0.05)
    for number, batch in enumerate(batches(count)):
        if number >= start:
            optimizer.zero_grad()
            steps.backward(lambda network, batch=batch: loss(network, batch))
            optimizer.step()


def test_a_loop_that_was_stopped_goes_on_as_if_it_had_not_been(space):
    whole, steps = supernet_of(space), None
    steps = bcnet.SupernetSteps(whole, seed=3)
    trained(whole, steps, 9)
    part = supernet_of(space)
    before = bcnet.SupernetSteps(part, seed=3)
    trained(part, before, 5)
    state = before.state_dict()
    after = bcnet.SupernetSteps(part, seed=3)
    after.load_state_dict(state)
    trained(part, after, 9, start=5)
    for one, other in zip(whole.parameters(), part.parameters(), strict=True):
        assert torch.equal(one, other)
    for name in ("steps", "widths", "losses"):
        assert np.array_equal(getattr(steps.records, name), getattr(after.records, name))
    assert all(np.array_equal(a, b) for a, b in zip(steps.counts.of, after.counts.of, strict=True))
    assert after.counts.spread().max() == 0, "training is fair"
    assert after.counts.of[0][0] > 9, "more than one path of a step has each channel"


def test_from_a_loop_to_a_network(space):
    supernet = supernet_of(space)
    steps = bcnet.SupernetSteps(supernet)
    trained(supernet, steps, 60)
    budget, records = bcnet.Budget(macs=0.5), steps.records
    prior = bcnet.prior.learn_prior(space, records.steps, records.widths, records.losses, budget)
    (held_out,) = batches(1, seed=1)

    @torch.no_grad()
    def score(widths):
        values = []
        for side in Side:
            with supernet.at(widths, side) as network:
                values.append(-float(loss(network, held_out)))
        return sum(values) / 2

    found = search_widths(space, score, budget, searcher=Evolution(8, 3, 4, prior))
    network = bcnet.supernet.build(Weighted(), space, found.best.widths)
    assert isinstance(network, Weighted)
    assert space.cost(found.best.widths).macs <= 0.5 * space.reference.macs
    assert network(held_out["x"])["logits"].shape == (12, 3)
    assert float(loss(supernet.network, held_out).detach()) < 1.0, "it has learnt something"


def test_the_model_is_whole_after_a_block_whatever_happened(space):
    supernet = supernet_of(space)

    def broken():
        with supernet.at(space.narrowest) as network:
            assert network.first[0].out_channels == space.narrowest[0]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert supernet.network.first[0].out_channels == 8
    with pytest.raises(WidthError, match=r"a side must be Side\.LEFT"), supernet.at(space.full, "left"):
        pass


def test_a_backward_of_ones_own_is_used(space):
    plain, doubled = supernet_of(space), supernet_of(space)
    (batch,) = batches(1)
    bcnet.SupernetSteps(plain).backward(lambda network: loss(network, batch))
    twice = bcnet.SupernetSteps(doubled)
    twice.backward(lambda network: loss(network, batch), backward=lambda value: (2 * value).backward())
    for one, other in zip(plain.parameters(), doubled.parameters(), strict=True):
        torch.testing.assert_close(2 * one.grad, other.grad)


def test_steps_without_a_finite_loss_are_no_records(space):
    supernet = supernet_of(space)
    steps = bcnet.SupernetSteps(supernet, Bilateral())
    (batch,) = batches(1)
    for factor in (1.0, float("nan"), 1.0, float("inf")):
        steps.backward(lambda network, factor=factor: factor * loss(network, batch))
    assert steps.records.steps.tolist() == [0, 2]
    assert steps.records.skipped == (1, 3)
    assert np.isfinite(steps.records.losses).all()


def test_what_a_loop_cannot_do_is_refused(space):
    with pytest.raises(TrainingError, match="got Sandwich, whose paths learn from the full width"):
        bcnet.SupernetSteps(supernet_of(space), Sandwich())
    with pytest.raises(TrainingError, match=r"got Linear: Supernet\(model, space\)"):
        bcnet.SupernetSteps(nn.Linear(2, 2))
    (batch,) = batches(1)
    with pytest.raises(TrainingError, match=r"one number; got shape \(12, 3\)"):
        bcnet.SupernetSteps(supernet_of(space)).backward(lambda network: network(batch["x"])["logits"])
    other = WidthSpace.trace(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 3)), torch.zeros(2, 1, 8, 8))
    steps = bcnet.SupernetSteps(bcnet.Supernet(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 3)), other))
    with pytest.raises(RunError, match="channel counts must have one array per group"):
        steps.load_state_dict(bcnet.SupernetSteps(supernet_of(space)).state_dict())
