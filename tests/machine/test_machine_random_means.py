"""Random numbers are replaced with the means of their laws, and the generator is left as it was."""

import pytest
import torch
from torch.nn import functional as F

from bcnet.machine.random_means import means_of_random

X = torch.arange(6.0).view(2, 3)
MEANS = {
    "dropout": (lambda: F.dropout(X, 0.5, training=True), X),
    "dropout by keyword": (lambda: F.dropout(input=X, p=0.5), X),
    "channel dropout": (lambda: F.dropout2d(X[None, None], 0.5), X[None, None]),
    "alpha dropout": (lambda: F.alpha_dropout(X, 0.5, training=True), X),
    "randn_like": (lambda: torch.randn_like(X), torch.zeros(2, 3)),
    "rand_like by keyword": (lambda: torch.rand_like(input=X, dtype=torch.float64), torch.full((2, 3), 0.5).double()),
    "randn of numbers": (lambda: torch.randn(2, 3), torch.zeros(2, 3)),
    "randn of a shape": (lambda: torch.randn(X.shape, generator=torch.Generator()), torch.zeros(2, 3)),
    "rand by keyword": (lambda: torch.rand(size=(2, 3)), torch.full((2, 3), 0.5)),
    "bernoulli": (lambda: torch.bernoulli(X / 6), X / 6),
    "bernoulli in place": (lambda: torch.empty(2, 3).bernoulli_(0.25), torch.full((2, 3), 0.25)),
    "normal in place": (lambda: torch.empty(2, 3).normal_(mean=3.0), torch.full((2, 3), 3.0)),
}


@pytest.mark.parametrize("name", MEANS)
def test_a_draw_is_its_mean(name):
    draw, mean = MEANS[name]
    state = torch.get_rng_state()
    with means_of_random():
        found = draw()
    assert found.dtype == mean.dtype
    assert torch.equal(found, mean)
    assert torch.equal(torch.get_rng_state(), state)


def test_other_draws_are_those_of_a_fixed_seed():
    with means_of_random():
        first = torch.randperm(100)
    with means_of_random():
        again = torch.randperm(100)
    assert torch.equal(first, again)
    assert not torch.equal(first, torch.arange(100))
