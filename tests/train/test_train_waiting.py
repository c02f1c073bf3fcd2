"""A GPU works ahead of its host, unless the host asks it for something: between the looks at losses nothing does."""

import pytest
import torch
from stand_in_device import DEVICE, stand_in
from tiny_job import TinyNetwork

from bcnet.data import Augmentation, Images, Normaliser, TrainingBatches
from bcnet.distributed import ProcessGroup
from bcnet.space import WidthSpace
from bcnet.supernet import Supernet, pairs
from bcnet.train import Complementary, NetworkLearner, Recipe, SupernetLearner, guard, train
from bcnet.train.reduction import Reduction

RECIPE = Recipe(lr=0.05, batch_size=8, epochs=2)
NORMALISER = Normaliser((0.5,), (0.25,))
LOOK = "train/update.py: _to_copy"


@pytest.fixture(scope="module")
def space():
    return WidthSpace.trace(TinyNetwork(), torch.zeros(2, 1, 8, 8), num_choices=4)


def learner_of(kind, space):
    network = TinyNetwork().to(DEVICE)
    if kind == "network":
        return NetworkLearner(network)
    supernet = Supernet(network, space)
    together = pairs.Pairs(supernet.network, space) if kind == "pairs" else None
    return SupernetLearner(supernet, Complementary(), together)


def images(where):
    labels = torch.arange(24) % 3
    return Images(torch.randint(256, (24, 1, 8, 8), dtype=torch.uint8), labels).to(where)


@pytest.mark.parametrize(
    ("kind", "where", "changes"),
    [
        ("supernet", "cpu", {"on_bad_step": "skip"}),
        ("pairs", DEVICE, {"optimizer": "rmsprop"}),
        ("network", DEVICE, {"clip_norm": 1.0, "distillation": {"temperature": 2.0, "weight": 0.5}}),
    ],
)
def test_a_training_waits_for_the_device_at_looks_only(monkeypatch, space, kind, where, changes):
    monkeypatch.setattr(guard, "LOOK_EVERY_ELSEWHERE", 4)
    learner, teacher = learner_of(kind, space), TinyNetwork().to(DEVICE)
    with stand_in() as waits:
        batches = TrainingBatches(images(where), 8, NORMALISER, Augmentation(1, True), device=DEVICE)
        waits.clear()
        waited = []
        recipe = RECIPE.with_changes(changes)
        train(learner, batches, recipe, seed=0, teacher=teacher, on_step=lambda _: waited.append([*waits]))
    assert waited == [[LOOK] * looks for looks in (1, 1, 1, 1, 2, 3)]  # the first step, the fourth after it, the last


def test_adding_gradients_up_waits_for_nothing():
    class Two(ProcessGroup):
        size = 2

    network = torch.nn.Linear(4, 3).to(DEVICE)
    with stand_in() as waits:
        network(torch.zeros(2, 4, device=DEVICE)).sum().backward()
        losses, classes = Reduction(network.parameters(), Two())(torch.zeros(2, device=DEVICE), 2, 3)
    assert (losses.device, classes, waits) == (DEVICE, 3, [])


def test_pairs_are_verified_on_the_device_of_the_network(monkeypatch, space):
    monkeypatch.setattr(pairs, "check_close", lambda output, expected: None)  # there are no values
    network = Supernet(TinyNetwork().to(DEVICE), space).network
    with stand_in():
        pairs.Pairs.verify(network, space, torch.zeros(2, 1, 8, 8))
