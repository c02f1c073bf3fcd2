import math
from itertools import islice, pairwise
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import nn

from bcnet.errors import RecipeError, RunError, TrainingError
from bcnet.files.tensors import read_tensors
from bcnet.machine.devices import resolve_precision
from bcnet.tasks import Classification, Metric, Task, distillation_loss
from bcnet.train import (
    Checkpoints,
    Complementary,
    Distillation,
    Interrupted,
    NetworkLearner,
    Recipe,
    SupernetLearner,
    learning_rate,
    train,
)
from bcnet.train.saving import Saver

RECIPE = Recipe(lr=0.05, batch_size=8, epochs=3, weight_decay=1e-3, warmup_epochs=0.5, label_smoothing=0.1)
IDENTITY = {"stage": "test"}


class StoppedError(Exception):
    pass


def stopper(at):
    def stop(progress):
        if progress.step == at:
            raise StoppedError

    return stop


def fresh_supernet(supernet_class):
    torch.manual_seed(0)
    return supernet_class()


def run(kind, supernet_class, batches, folder, *, recipe=RECIPE, stop_at=None):
    """Train one fresh learner in `folder`; the bytes of its last checkpoint."""
    supernet = fresh_supernet(supernet_class)
    learner = SupernetLearner(supernet, Complementary()) if kind == "supernet" else NetworkLearner(plain_network())
    folder.mkdir(exist_ok=True)
    checkpoints = Checkpoints(folder / "c.safetensors", IDENTITY, every_steps=2)
    records = train(
        learner,
        batches,
        recipe,
        seed=5,
        checkpoints=checkpoints,
        on_step=stopper(stop_at),
    )
    return (folder / "c.safetensors").read_bytes(), records, learner.module


def test_statistics_of_norms_without_momentum_follow_too(tiny_batches):
    still, usual = plain_network(), plain_network()
    still.load_state_dict(usual.state_dict())
    still[1].momentum = 0.0
    for network in (still, usual):
        train(NetworkLearner(network), tiny_batches, RECIPE, seed=0)
    assert still[1].running_var.tolist() == usual[1].running_var.tolist()
    assert still[1].momentum == 0
    assert usual[1].momentum == 0.1


def plain_network():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(4, 3),
    )


@pytest.mark.parametrize("kind", ["supernet", "network"])
@pytest.mark.parametrize("optimizer", ["sgd-nesterov", "rmsprop", "adamw"])
@pytest.mark.parametrize("stop_at", [1, 4, 5, 11, 14, 15])
def test_resuming_at_any_step_gives_the_same_bytes(tiny_supernet, tiny_batches, tmp_path, kind, optimizer, stop_at):
    recipe = RECIPE.with_changes({"optimizer": optimizer, "lr": 0.01})
    whole, records, _ = run(kind, type(tiny_supernet), tiny_batches, tmp_path / "whole", recipe=recipe)
    with pytest.raises(StoppedError):
        run(kind, type(tiny_supernet), tiny_batches, tmp_path / "cut", recipe=recipe, stop_at=stop_at)
    torch.rand(stop_at)  # the caller's own randomness does not matter
    resumed, again, _ = run(kind, type(tiny_supernet), tiny_batches, tmp_path / "cut", recipe=recipe)
    assert resumed == whole
    assert again.losses.tolist() == records.losses.tolist()
    assert len(records) == 15 * (2 if kind == "supernet" else 1)


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_a_training_in_two_parts_is_the_whole(tiny_batches, tmp_path, epochs):
    recipe = RECIPE.with_changes({"schedule.kind": "cosine"})
    whole, first, second = (plain_network() for _ in range(3))
    for network in (first, second):
        network.load_state_dict(whole.state_dict())
    train(NetworkLearner(whole), tiny_batches, recipe, seed=5)
    checkpoints = Checkpoints(tmp_path / "part.safetensors", IDENTITY)
    train(NetworkLearner(first), tiny_batches, recipe, seed=5, checkpoints=checkpoints, until=epochs)
    state = read_tensors(checkpoints.path, IDENTITY)
    steps = []
    records = train(
        NetworkLearner(second),
        tiny_batches,
        recipe,
        seed=5,
        interrupted=lambda: Interrupted(epochs, state),
        on_step=steps.append,
    )
    for name, tensor in whole.state_dict().items():
        assert torch.equal(second.state_dict()[name], tensor), name
    rest = range(epochs * len(tiny_batches) + 1, recipe.epochs * len(tiny_batches) + 1)
    assert [progress.step for progress in steps] == [*rest]
    assert len(records) == len(rest)


def test_a_training_gone_on_with_other_data_keeps_its_place_in_the_schedule(tiny_batches, tmp_path):
    checkpoints = Checkpoints(tmp_path / "part.safetensors", IDENTITY)
    learner = NetworkLearner(plain_network())
    train(learner, FewerBatches(tiny_batches), RECIPE, seed=5, checkpoints=checkpoints, until=2)
    state = read_tensors(checkpoints.path, IDENTITY)
    steps = []
    train(learner, tiny_batches, RECIPE, seed=5, interrupted=lambda: Interrupted(2, state), on_step=steps.append)
    length = len(tiny_batches)
    assert [(p.step, p.lr) for p in steps] == [
        (step + 1, learning_rate(RECIPE, step, length)) for step in range(2 * length, 3 * length)
    ]


class FewerBatches:
    """All but the first batch of an epoch."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches) - 1

    def epoch(self, generator):
        return islice(self.batches.epoch(generator), 1, None)


@pytest.mark.parametrize("kind", ["supernet", "network"])
def test_the_average_survives_a_stop(tiny_supernet, tiny_batches, tmp_path, kind):
    recipe = RECIPE.with_changes({"ema": 0.8, "accumulate": 2})
    whole = run(kind, type(tiny_supernet), tiny_batches, tmp_path / "whole", recipe=recipe)
    with pytest.raises(StoppedError):
        run(kind, type(tiny_supernet), tiny_batches, tmp_path / "cut", recipe=recipe, stop_at=5)
    again = run(kind, type(tiny_supernet), tiny_batches, tmp_path / "cut", recipe=recipe)
    assert again[0] == whole[0]
    for one, other in zip(again[2].state_dict().values(), whole[2].state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_the_average_is_that_of_the_weights_after_each_step(tiny_batches):
    seen = []
    network = plain_network()

    def remember(progress):
        seen.append({name: tensor.clone() for name, tensor in network.state_dict().items()})

    train(NetworkLearner(network), tiny_batches, RECIPE.with_changes({"ema": 0.7}), seed=5, on_step=remember)
    wanted = seen[0]
    for number, weights in enumerate(seen[1:], 1):
        kept = min(0.7, (1 + number) / (10 + number))
        wanted = {
            name: torch.lerp(w, wanted[name], kept) if w.is_floating_point() else w for name, w in weights.items()
        }
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(tensor, wanted[name])
    assert not torch.allclose(wanted["0.weight"], seen[-1]["0.weight"])


def test_a_batch_in_parts_gives_the_gradient_of_the_whole(tiny_batches):
    trained = []
    for parts in (1, 3, 8):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))  # no batch norm
        network(next(iter(tiny_batches.epoch(torch.Generator().manual_seed(0))))[0])
        recipe = RECIPE.with_changes({"accumulate": parts, "precision": "fp32"})
        seen = []
        network.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(len(args[0])))
        task = Classification(class_weights=(1.0, 2.0, 0.5))
        records = train(NetworkLearner(network, task), tiny_batches, recipe, seed=5)
        trained.append((network.state_dict(), torch.tensor(records.losses)))
        assert max(seen) == math.ceil(8 / parts), "no more images at once than a part has"
    for weights, losses in trained[1:]:
        torch.testing.assert_close(weights, trained[0][0])
        torch.testing.assert_close(losses, trained[0][1])


def test_parts_are_no_more_than_a_batch_has_images():
    with pytest.raises(RecipeError, match=r"'accumulate' must be at most 'batch_size', 8; got 9"):
        RECIPE.with_changes({"accumulate": 9})


def test_training_leaves_the_callers_randomness_alone(tiny_supernet, tiny_batches):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    train(SupernetLearner(tiny_supernet, Complementary()), tiny_batches, RECIPE, seed=0)
    assert torch.rand(1) == expected


def test_training_learns(tiny_supernet):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 1, 4, 4, generator=generator)
    y = (x.mean((1, 2, 3)) > 0).long()

    class Batches:
        def __len__(self):
            return 8

        def epoch(self, generator):
            return ((x[rows], y[rows]) for rows in torch.randperm(64, generator=generator).split(8))

    network = plain_network()
    train(NetworkLearner(network), Batches(), RECIPE.with_changes({"epochs": 20}), seed=0)
    found = Classification().test(network, [(x, y)])
    assert found.figures["top1"] > 80
    assert found.count == 64


def test_not_a_number_names_stage_step_and_widths(tiny_supernet, tiny_batches, tmp_path):
    learner = SupernetLearner(tiny_supernet, Complementary())
    checkpoints = Checkpoints(tmp_path / "c.safetensors", IDENTITY, every_steps=1)
    tiny_batches.x = torch.full_like(tiny_batches.x, float("inf"))
    with pytest.raises(TrainingError, match=r"stage supernet, step 0 at widths \[\d, \d\] and \[\d, \d\]: .* lower lr"):
        train(learner, tiny_batches, RECIPE, seed=0, stage="supernet", checkpoints=checkpoints)
    assert list(tmp_path.iterdir()) == []


def test_no_batch_is_an_error(tiny_supernet):
    class Nothing:
        def __len__(self):
            return 0

        def epoch(self, generator):
            return iter(())

    with pytest.raises(TrainingError, match="at least one batch"):
        train(SupernetLearner(tiny_supernet, Complementary()), Nothing(), RECIPE, seed=0)


class Slope(Task):
    """The loss is the network's one weight, so that the gradient is one."""

    name: ClassVar[str] = "slope"
    headline: ClassVar[Metric] = Metric("value", "value")

    def loss(self, outputs, targets):
        return outputs.mean()

    def score(self, outputs, targets):
        return outputs[:, 0]

    def figures(self, outputs, targets):
        return {"value": outputs[:, 0]}


class OneWeight(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.weight.expand(len(x), 1)


@pytest.mark.parametrize("clip_norm", [None, 0.25])
def test_every_step_goes_as_far_as_the_schedule_says(tiny_batches, clip_norm):
    plain = {"momentum": 1e-12, "weight_decay": 0.0, "precision": "fp32"}
    recipe = Recipe(lr=0.1, batch_size=8, epochs=3, warmup_epochs=1, clip_norm=clip_norm, **plain)
    network = OneWeight()
    seen = [0.0]
    train(
        NetworkLearner(network, Slope()),
        tiny_batches,
        recipe,
        seed=0,
        on_step=lambda progress: seen.append(float(network.weight.detach())),
    )
    steps = len(tiny_batches)
    rates = [learning_rate(recipe, step, steps) for step in range(3 * steps)]
    assert len(set(rates)) > steps
    moved = [before - after for before, after in pairwise(seen)]
    assert moved == pytest.approx([rate * (clip_norm or 1.0) for rate in rates], rel=1e-4, abs=1e-7)


def test_a_checkpoint_of_a_longer_training_is_refused(tiny_batches, tmp_path):
    run("network", nn.Identity, tiny_batches, tmp_path)
    with pytest.raises(RunError, match=r"step \d+ of \d+, where there are \d+"):
        run("network", nn.Identity, tiny_batches, tmp_path, recipe=RECIPE.with_changes({"epochs": 4}))


def test_losses_are_looked_at_where_a_checkpoint_or_the_end_is_due(tmp_path):
    def due(checkpoints, size):
        saver = Saver(checkpoints, 50, SimpleNamespace(size=size, is_rank_zero=True))
        return [step for step in range(1, 51) if saver.look_is_due(step)]

    every = Checkpoints(tmp_path / "c.safetensors", IDENTITY, every_steps=20)
    assert due(None, 1) == [50]
    assert due(every, 1) == [20, 40, 50]
    assert due(None, 2) == [16, 32, 48, 50]
    assert due(every, 2) == [16, 20, 32, 40, 48, 50]


@pytest.mark.parametrize("size", [1, 2])
def test_one_process_saves_by_the_clock_and_several_where_they_look_anyway(tmp_path, size):
    checkpoints = Checkpoints(tmp_path / "c.safetensors", IDENTITY, every_seconds=0.0)
    saver = Saver(checkpoints, 50, SimpleNamespace(size=size, is_rank_zero=True))
    assert saver.save_is_due(7, look=True)
    assert saver.save_is_due(7, look=False) == (size == 1)
    other = Saver(checkpoints, 50, SimpleNamespace(size=size, is_rank_zero=False))
    assert not other.save_is_due(50, look=True)


def test_a_checkpoint_of_another_model_is_refused(tiny_supernet, tiny_batches, tmp_path):
    run("network", type(tiny_supernet), tiny_batches, tmp_path)
    with pytest.raises(RunError, match="does not fit this model"):
        run("supernet", type(tiny_supernet), tiny_batches, tmp_path)


def test_output_that_is_no_logits_is_an_error(tiny_batches):
    with pytest.raises(TrainingError, match=r"logits \(batch, classes\), 8 rows here, .*; got \(8, 1, 4, 4\)"):
        train(NetworkLearner(nn.Conv2d(1, 1, 1)), tiny_batches, RECIPE, seed=0)


def test_a_perfect_copy_of_the_teacher_has_nothing_to_learn(tiny_batches):
    torch.manual_seed(0)
    network = plain_network()
    network[5] = nn.Identity()
    network.eval()
    logits = network(tiny_batches.x).detach()
    assert float(distillation_loss(logits, logits, 4.0)) == pytest.approx(0.0, abs=1e-6)
    recipe = RECIPE.with_changes({"epochs": 8}).model_copy(update={"distillation": Distillation(weight=1.0)})
    student = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    before = float(distillation_loss(student(tiny_batches.x).detach(), logits, 4.0))
    train(NetworkLearner(student), tiny_batches, recipe, seed=0, teacher=network)
    assert float(distillation_loss(student(tiny_batches.x).detach(), logits, 4.0)) < before


def test_bf16_and_clipping_train(tiny_supernet, tiny_batches):
    recipe = RECIPE.with_changes({"precision": "bf16", "clip_norm": 1.0, "decay_norm_and_bias": False})
    records = train(SupernetLearner(tiny_supernet, Complementary()), tiny_batches, recipe, seed=0)
    assert records.losses.max() < 3


@pytest.mark.parametrize(
    ("make", "wish", "taken"),
    [
        (lambda: nn.Conv2d(1, 4, 3, 1, 1), "auto", "bf16"),
        (lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(1, 4, 3, 2, 1)), "auto", "fp32"),
        (lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(1, 4, 3, 2, 1)), "bf16", "bf16"),
    ],
)
def test_what_bf16_gets_wrong_is_trained_in_fp32_unless_bf16_is_asked_for(monkeypatch, tiny_batches, make, wish, taken):
    met = []

    class Stop(NetworkLearner):
        def forward(self, x, paths):
            met.append("bf16" if torch.is_autocast_enabled("cpu") else "fp32")
            raise StoppedError

    monkeypatch.setattr("bcnet.train.loop.resolve_precision", lambda *_: "bf16")
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: True)
    with pytest.raises(StoppedError):
        train(Stop(make()), tiny_batches, RECIPE.with_changes({"precision": wish}), seed=0)
    assert met == [taken]


def test_fp16_needs_a_gpu():
    with pytest.raises(RecipeError, match="fp16 needs a GPU"):
        resolve_precision("fp16", torch.device("cpu"))


def test_a_file_holds_weights_optimiser_and_records(tiny_supernet, tiny_batches, tmp_path):
    run("supernet", type(tiny_supernet), tiny_batches, tmp_path)
    tensors, state = read_tensors(tmp_path / "c.safetensors", IDENTITY)
    assert {"module:first.weight", "optimizer:first.weight/momentum_buffer", "records:losses"} <= set(tensors)
    assert state["step"] == 15
