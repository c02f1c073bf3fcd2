"""Training on several processes against the same training on one."""

import dataclasses
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_supernet import TinyBatches, TinySupernet
from torch import nn

from bcnet.data import Augmentation, Images, Normaliser, TrainingBatches
from bcnet.distributed import ProcessGroup
from bcnet.errors import RunError, TrainingError
from bcnet.train import (
    STRATEGIES,
    Checkpoints,
    Complementary,
    NetworkLearner,
    Recipe,
    Reduction,
    SupernetLearner,
    accumulate_gradients,
    train,
)
from bcnet.train.batches import share_of

RECIPE = Recipe(lr=0.05, batch_size=8, epochs=2, weight_decay=1e-2, label_smoothing=0.1, precision="fp32")
IDENTITY = {"stage": "test"}


def supernet():
    torch.manual_seed(0)
    made = TinySupernet()
    made.dropout.p = 0.0  # the processes drop differently, as they should
    return made


def with_batch_norm():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(16, 3)
    )


class Uneven(TinyBatches):
    """Batches of 8, 8, 8, 8, 5 and 2 images."""

    def __len__(self):
        return 6

    def epoch(self, generator):
        for rows in torch.randperm(40, generator=generator)[:39].split([8, 8, 8, 8, 5, 2]):
            yield self.x[rows] + 0.1 * torch.randn(len(rows), 1, 4, 4, generator=generator), self.y[rows]


def gradients_of_a_step(world, seed, images, strategy):
    """The reduced gradients and losses of one step; `images` rows, of which this process has its part."""
    net = supernet()
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(images, 1, 4, 4, generator=generator), torch.randint(3, (images,), generator=generator)
    learner = SupernetLearner(net, STRATEGIES[strategy]())
    terms = learner.plan(generator)
    mine = world.part(images)

    def loss(paths):
        return [nn.functional.cross_entropy(learner.forward(x[mine], paths)[0], y[mine])]

    count = len(y[mine])
    means = accumulate_gradients(terms, loss) if count else torch.zeros(len(terms))
    losses, classes = Reduction(net.parameters(), world)(means, count, 3 if count else 0)
    assert classes == 3
    return losses.tolist(), {name: p.grad for name, p in net.named_parameters()}


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(1, 13), st.sampled_from(sorted(STRATEGIES)), st.integers(2, 3))
def test_the_step_of_many_processes_is_that_of_one_on_the_whole_batch(processes, seed, images, strategy, size):
    expected_losses, expected = gradients_of_a_step(ProcessGroup(), seed, images, strategy)
    for losses, gradients in processes.run(size, gradients_of_a_step, seed, images, strategy):
        assert losses == pytest.approx(expected_losses, rel=1e-5)
        for name, reference in expected.items():
            torch.testing.assert_close(gradients[name], reference, rtol=1e-4, atol=1e-6)


def unused_parameters(world, images):
    """Gradients where a parameter is on no path, and where a process has no images."""
    torch.manual_seed(0)
    used, unused = nn.Linear(3, 2), nn.Linear(3, 2)
    x = torch.ones(images, 3)[world.part(images)]
    if len(x):
        used(x).mean().backward()
    Reduction([*used.parameters(), *unused.parameters()], world)(torch.ones(1), len(x), 2)
    return [parameter.grad is None for parameter in (*used.parameters(), *unused.parameters())]


@pytest.mark.parametrize("images", [1, 2, 5])
def test_what_no_path_used_has_no_gradient_to_decay_or_coast_on(processes, images):
    assert processes.run(3, unused_parameters, images) == [[False, False, True, True]] * 3


def trained(world, kind, recipe, folder=None, stop_at=None):
    """Weights, losses, progress and the bytes of the checkpoint of a whole training; stopped after a step or not."""
    learner = {
        "supernet": lambda: SupernetLearner(supernet(), Complementary()),
        "batch norm": lambda: NetworkLearner(with_batch_norm()),
    }[kind]()
    if world.rank:
        for parameter in learner.module.parameters():  # rank 0's weights count
            nn.init.ones_(parameter)
    heard = []

    def on_step(progress):
        heard.append(progress)
        if progress.step == stop_at:
            raise InterruptedError

    path = None if folder is None else folder / "c.safetensors"
    checkpoints = None if path is None else Checkpoints(path, IDENTITY, every_steps=4)
    teacher = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)) if recipe.distillation else None
    if teacher is not None:
        nn.init.constant_(teacher[1].weight, 0.1)
        nn.init.zeros_(teacher[1].bias)
    try:
        records = train(
            learner, Uneven(), recipe, seed=5, checkpoints=checkpoints, teacher=teacher, on_step=on_step, world=world
        )
    except InterruptedError:
        return None
    return {
        "weights": {name: tensor.clone() for name, tensor in learner.module.state_dict().items()},
        "losses": records.losses.tolist(),
        "widths": records.widths.tolist(),
        "progress": [dataclasses.asdict(progress) for progress in heard],
        "bytes": None if path is None else path.read_bytes(),
    }


@pytest.mark.parametrize(
    "changes",
    [{}, {"optimizer": "rmsprop", "lr": 0.01}, {"clip_norm": 0.1}, {"distillation.weight": 0.5}],
    ids=["sgd", "rmsprop", "clipping", "distillation"],
)
def test_many_processes_train_what_one_trains(processes, changes):
    recipe = RECIPE.with_changes(changes)
    alone = trained(ProcessGroup(), "supernet", recipe)
    together = processes.run(3, trained, "supernet", recipe)
    for found in together:
        assert found["widths"] == alone["widths"]
        assert found["losses"] == together[0]["losses"]
        assert found["losses"] == pytest.approx(alone["losses"], rel=1e-3)
        assert [p["step"] for p in found["progress"]] == list(range(1, 13))
        for name, reference in alone["weights"].items():
            torch.testing.assert_close(found["weights"][name], reference, rtol=1e-3, atol=1e-5)
            assert torch.equal(found["weights"][name], together[0]["weights"][name])


@pytest.mark.parametrize("kind", ["supernet", "batch norm"])
def test_together_too_resuming_gives_the_same_bytes(processes, tmp_path, kind):
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    whole = processes.run(2, trained, kind, RECIPE, tmp_path / "whole")
    for stop_at in (6, 9):
        assert processes.run(2, trained, kind, RECIPE, tmp_path / "cut", stop_at) == [None, None]
    resumed = processes.run(2, trained, kind, RECIPE, tmp_path / "cut")
    for found in resumed:
        assert found["bytes"] == whole[0]["bytes"]
        assert found["losses"] == whole[0]["losses"]
        for name, tensor in whole[1]["weights"].items():
            assert torch.equal(found["weights"][name], tensor)
    assert os.listdir(tmp_path / "cut") == os.listdir(tmp_path / "whole")


def images_seen(world, size):
    """What reaches this process: of batches that share the preparation, and of ones that do not."""
    pixels = torch.arange(20, dtype=torch.uint8)[:, None, None, None].expand(20, 1, 3, 3).contiguous()
    batches = TrainingBatches(
        Images(pixels, torch.arange(20)), size, Normaliser((0.0,), (1.0,)), Augmentation(padding=1, flip=True)
    )
    own = list(share_of(batches, world).epoch(torch.Generator().manual_seed(3)))
    cut = [(x[world.part(size)], y[world.part(size)]) for x, y in batches.epoch(torch.Generator().manual_seed(3))]
    assert len(share_of(batches, world)) == len(batches)
    return own, cut


@pytest.mark.parametrize("batch_size", [2, 7])
def test_the_processes_see_the_images_that_one_would_see(processes, batch_size):
    found = processes.run(3, images_seen, batch_size)
    for own, cut in found:
        for (x, y), (expected_x, expected_y) in zip(own, cut, strict=True):
            assert torch.equal(x, expected_x)
            assert torch.equal(y, expected_y)
    labels = [torch.cat([own[step][1] for own, _ in found]) for step in range(20 // batch_size)]
    assert len(torch.cat(labels).unique()) == 20 // batch_size * batch_size


def dropped(world):
    """What dropout leaves of ones, in training."""

    class Recording(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.head, self.seen = nn.Dropout(0.5), nn.Linear(16, 3), []

        def forward(self, x):
            kept = self.drop(torch.ones(x.shape[0], 16))
            self.seen.append(kept)
            return self.head(kept)

    network = Recording()
    train(NetworkLearner(network), TinyBatches(), RECIPE.with_changes({"epochs": 1}), seed=0, world=world)
    return torch.stack(network.seen)


def test_the_processes_drop_different_channels(processes):
    first, second = processes.run(2, dropped)
    assert first.shape == second.shape == (5, 4, 16)
    assert not torch.equal(first, second)


def not_a_number(world, folder):
    batches = TinyBatches()
    if world.rank == 1:
        batches.x = torch.full_like(batches.x, float("inf"))
    checkpoints = Checkpoints(folder / "c.safetensors", IDENTITY, every_steps=1)
    train(SupernetLearner(supernet(), Complementary()), batches, RECIPE, seed=0, world=world, checkpoints=checkpoints)


def test_a_loss_that_is_no_number_on_one_process_stops_all(processes, tmp_path):
    for error in processes.run(2, not_a_number, tmp_path):
        assert isinstance(error, TrainingError)
        assert "step 0 at widths" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_is_refused_by_all(processes, tmp_path):
    processes.run(2, trained, "supernet", RECIPE, tmp_path)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    for error in processes.run(2, trained, "supernet", RECIPE, tmp_path):
        assert isinstance(error, RunError)
        assert "is damaged or not ours" in str(error)


def test_a_checkpoint_of_another_model_is_refused_by_all(processes, tmp_path):
    processes.run(2, trained, "batch norm", RECIPE, tmp_path)
    for error in processes.run(2, trained, "supernet", RECIPE, tmp_path):
        assert isinstance(error, RunError)
        assert "does not fit this model" in str(error)
