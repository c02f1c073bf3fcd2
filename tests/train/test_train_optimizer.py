"""What a step does to the weights, by hand, and the learning rate between its ends."""

import math

import pytest
import torch
from torch import nn

from bcnet.errors import RunError
from bcnet.space import Side
from bcnet.tasks import Classification
from bcnet.train import Cosine, Distillation, NetworkLearner, Recipe, learning_rate
from bcnet.train.objective import Objective
from bcnet.train.optimizer import make_optimizer, optimizer_tensors, restore_optimizer
from bcnet.train.step import Path

RECIPE = Recipe(lr=0.1, batch_size=4, epochs=5, momentum=0.8, weight_decay=0.05)
GRADIENTS = (1.0, -0.5, 0.25, 2.0)


class OneWeight(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((1, 1), 2.0))
        self.bias = nn.Parameter(torch.full((1,), 3.0))


def weights_after(recipe):
    """Weight and bias after each step of given gradients."""
    module = OneWeight()
    optimizer = make_optimizer(module, recipe)
    found = []
    for gradient in GRADIENTS:
        module.weight.grad = torch.full((1, 1), gradient)
        module.bias.grad = torch.full((1,), gradient)
        optimizer.step()
        found.append((float(module.weight.detach()), float(module.bias.detach())))
    return found


def by_hand(start, recipe, decay):
    """Nesterov's momentum as Sutskever et al. (2013) have it, with weight decay in the gradient."""
    weight, velocity, found = start, 0.0, []
    for gradient in GRADIENTS:
        whole = gradient + decay * weight
        velocity = recipe.momentum * velocity + whole
        weight -= recipe.lr * (whole + recipe.momentum * velocity)
        found.append(weight)
    return found


def test_sgd_is_nesterovs_with_weight_decay():
    weights, biases = zip(*weights_after(RECIPE), strict=True)
    assert weights == pytest.approx(by_hand(2.0, RECIPE, 0.05), rel=1e-5)
    assert biases == pytest.approx(by_hand(3.0, RECIPE, 0.05), rel=1e-5)


def test_weight_decay_spares_vectors_where_it_should():
    weights, biases = zip(*weights_after(RECIPE.with_changes({"decay_norm_and_bias": False})), strict=True)
    assert weights == pytest.approx(by_hand(2.0, RECIPE, 0.05), rel=1e-5)
    assert biases == pytest.approx(by_hand(3.0, RECIPE, 0.0), rel=1e-5)


def test_rmsprop_decays_too():
    decayed = weights_after(RECIPE.with_changes({"optimizer": "rmsprop"}))
    free = weights_after(RECIPE.with_changes({"optimizer": "rmsprop", "weight_decay": 0.0}))
    assert all(abs(a[0]) < abs(b[0]) for a, b in zip(decayed, free, strict=True))


def test_adamw_is_that_of_its_paper():
    """Loshchilov and Hutter (2019): decay beside the step, which has the size of the learning rate."""
    recipe = RECIPE.with_changes({"optimizer": "adamw", "lr": 0.01})
    weight, first, second, expected = 2.0, 0.0, 0.0, []
    for step, gradient in enumerate(GRADIENTS, start=1):
        weight -= 0.01 * 0.05 * weight
        first = 0.8 * first + 0.2 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        weight -= 0.01 * (first / (1 - 0.8**step)) / (math.sqrt(second / (1 - 0.999**step)) + 1e-8)
        expected.append(weight)
    assert [weight for weight, _ in weights_after(recipe)] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
def test_a_cosine_is_no_line(share):
    recipe = Recipe(lr=0.4, batch_size=1, epochs=1, schedule=Cosine(final_lr=0.01))
    steps = 1001
    expected = 0.01 + 0.39 * (1 + math.cos(math.pi * share)) / 2
    assert learning_rate(recipe, round(share * (steps - 1)), steps) == pytest.approx(expected, rel=1e-6)


def test_what_a_recipe_says_of_the_loss_reaches_it():
    """Label smoothing and distillation, as a training step computes them."""
    generator = torch.Generator().manual_seed(0)
    x, taught = torch.randn(4, 6, generator=generator), torch.randn(4, 3, generator=generator)
    y, network = torch.tensor([0, 1, 2, 1]), nn.Linear(6, 3)
    task, paths = Classification(), (Path((), Side.LEFT),)

    def loss(recipe, teacher=None):
        return float(Objective(NetworkLearner(network), recipe, "fp32", x, y, teacher)(paths)[0].detach())

    outputs = network(x)
    smoothed = float(task.training_loss(outputs, y, label_smoothing=0.3).detach())
    assert loss(RECIPE.with_changes({"label_smoothing": 0.3})) == pytest.approx(smoothed)
    distilling = Distillation(temperature=5.0, weight=0.7)
    expected = float(task.training_loss(outputs, y, taught=taught, distilling=distilling).detach())
    assert loss(RECIPE.with_changes({"distillation": distilling.model_dump()}), taught) == pytest.approx(expected)
    assert len({round(v, 6) for v in (loss(RECIPE), smoothed, expected)}) == 3


@pytest.mark.parametrize("kind", ["sgd-nesterov", "rmsprop", "adamw"])
def test_a_state_is_put_back_whole_or_refused(kind):
    recipe = RECIPE.with_changes({"optimizer": kind})
    module = OneWeight()
    optimizer = make_optimizer(module, recipe)
    module.weight.grad = torch.ones(1, 1)
    module.bias.grad = torch.ones(1)
    optimizer.step()
    kept = optimizer_tensors(module, optimizer)
    another = make_optimizer(module, recipe)
    restore_optimizer(module, another, kept)
    again = optimizer_tensors(module, another)
    assert again.keys() == kept.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in kept.items())
    name = next(name for name, tensor in kept.items() if name.startswith("weight/") and tensor.ndim == 2)
    wrong = {
        "fits no parameter": (
            {**kept, name: kept[name][0]},
            {**kept, name: kept[name].double()},
            {**kept, "weight/unknown": kept[name]},
            {**kept, "missing/" + name.partition("/")[2]: kept[name]},
        ),
        "lacks": ({key: tensor for key, tensor in kept.items() if key != name} | {"weight/step": torch.ones(())},),
    }
    if kind == "sgd-nesterov":  # which counts no steps
        wrong.pop("lacks")
    for message, states in wrong.items():
        for state in states:
            with pytest.raises(RunError, match=message):
                restore_optimizer(module, another, state)
