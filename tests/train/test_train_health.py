import math
import re

import numpy as np
import pytest
import torch
from tiny_supernet import TinyBatches, TinySupernet
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from bcnet.errors import TrainingError
from bcnet.files.tensors import read_tensors
from bcnet.train import ChannelCounts, Checkpoints, Complementary, NetworkLearner, Recipe, SupernetLearner, guard, train
from bcnet.train.health import PATIENCE, WINDOW, Health, Verdict
from bcnet.train.update import Seen, Updates

RECIPE = Recipe(lr=0.05, batch_size=8, epochs=3, weight_decay=1e-3)
SKIP = RECIPE.with_changes({"on_bad_step": "skip"})
IDENTITY = {"run": "0", "stage": "test"}


class PoisonedBatches(TinyBatches):
    """Images that are infinite at some positions of every epoch."""

    def __init__(self, *positions):
        super().__init__()
        self.positions = positions

    def epoch(self, generator):
        for position, (x, y) in enumerate(super().epoch(generator)):
            yield (torch.full_like(x, torch.inf) if position in self.positions else x), y


class Stopped(Exception):  # noqa: N818
    pass


def stopper(at):
    def stop(progress):
        if progress.step == at:
            raise Stopped

    return stop


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(4, 3),
    )


def learner_of(kind):
    if kind == "network":
        return NetworkLearner(network())
    torch.manual_seed(0)
    return SupernetLearner(TinySupernet(), Complementary())


def run(folder, kind="supernet", *, recipe=SKIP, batches=None, stop_at=None, learner=None):
    """Train in `folder`; the bytes of the last checkpoint, the records, the module."""
    folder.mkdir(exist_ok=True)
    learner = learner or learner_of(kind)
    where = Checkpoints(folder / "c.safetensors", IDENTITY, every_steps=2)
    batches = batches or PoisonedBatches(1, 2)
    records = train(learner, batches, recipe, seed=5, stage="first", checkpoints=where, on_step=stopper(stop_at))
    return (folder / "c.safetensors").read_bytes(), records, learner.module


def state_of(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


# ---------------------------------------------------------------- the rule


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_bad(loss):
    verdict = Health(RECIPE).check(3, [1.0, loss], 1.0, 10)
    assert (verdict.bad, verdict.stop) == (True, True)
    assert f"got 1, {loss}" in verdict.fault


def test_a_gradient_that_is_no_number_is_bad():
    verdict = Health(RECIPE).check(3, [1.0], math.nan, 10)
    assert verdict.stop
    assert "the norm of the gradient must be a finite number; got nan at loss 1" in verdict.fault


def test_bad_steps_are_left_out_until_too_many_follow_each_other():
    health = Health(SKIP.with_changes({"max_bad_steps": 2}))
    verdicts = [health.check(s, [math.nan if s in (1, 2, 4, 5, 6) else 1.0], 1.0, 10) for s in range(7)]
    assert [v.bad for v in verdicts] == [False, True, True, False, True, True, True]
    assert [v.stop for v in verdicts] == [False] * 6 + [True]
    assert "3 bad steps in a row, and max_bad_steps is 2" in verdicts[-1].fault
    assert health.skipped == [1, 2, 4, 5, 6]


def checked(losses, recipe=RECIPE, classes=10):
    health = Health(recipe)
    return [health.check(step, [loss], 1.0, classes).stop for step, loss in enumerate(losses)]


def test_a_loss_that_stays_far_above_its_usual_size_explodes():
    usual, high = [2.3] * 50, [47.0] * PATIENCE  # 20 * ln 10 = 46.05, 20 * 2.3 = 46
    assert checked(usual + high) == [False] * (50 + PATIENCE - 1) + [True]
    assert not any(checked(usual + high[1:] + [2.3] + high[1:]))
    assert not any(checked(usual + high, RECIPE.with_changes({"explosion_factor": None})))
    assert checked([40.0] * 50 + [700.0] * PATIENCE) == [False] * (50 + PATIENCE)  # 20 * 40 = 800
    assert checked([40.0] * 50 + [900.0] * PATIENCE)[-1]


def test_a_loss_no_worse_than_guessing_never_explodes():
    assert not any(checked([1e-4] * WINDOW + [2.3] * 30))


def test_health_goes_on_where_it_stopped():
    losses = [2.0, math.nan, *[2.0] * WINDOW, *[50.0] * PATIENCE]
    whole, first = Health(SKIP), Health(SKIP)
    expected = [whole.check(s, [loss], 1.0, 10) for s, loss in enumerate(losses)]
    found = []
    for step, loss in enumerate(losses):
        second = Health(SKIP)
        second.restore(first.state())
        first = second
        found.append(first.check(step, [loss], 1.0, 10))
    assert found == expected
    assert expected[-1].stop


# ---------------------------------------------------------------- in training


@pytest.mark.parametrize("kind", ["supernet", "network"])
@pytest.mark.parametrize("look_every", [1, 4])
def test_a_step_left_out_leaves_no_trace(tmp_path, monkeypatch, kind, look_every):
    monkeypatch.setitem(guard.LOOK_EVERY, "cpu", look_every)
    learner = learner_of(kind)
    seen = []
    train(learner, PoisonedBatches(1, 2), SKIP, seed=5, on_step=lambda progress: seen.append(state_of(learner.module)))
    for step in (1, 2, 6, 7, 11, 12):
        for name, tensor in seen[step].items():
            assert torch.equal(tensor, seen[step - 1][name]), (step, name)
    assert any(not torch.equal(tensor, seen[2][name]) for name, tensor in seen[3].items())


@pytest.mark.parametrize("kind", ["supernet", "network"])
@pytest.mark.parametrize("optimizer", ["sgd-nesterov", "rmsprop", "adamw"])
def test_looking_rarely_changes_nothing(tmp_path, monkeypatch, kind, optimizer):
    recipe = SKIP.with_changes({"optimizer": optimizer, "clip_norm": 1.0})
    _, records, module = run(tmp_path / "each", kind, recipe=recipe)
    monkeypatch.setitem(guard.LOOK_EVERY, "cpu", 4)
    learner = learner_of(kind)
    again = train(learner, PoisonedBatches(1, 2), recipe, seed=5, stage="first")
    assert again.losses.tolist() == records.losses.tolist()
    assert again.steps.tolist() == records.steps.tolist()
    assert again.skipped == records.skipped == (1, 2, 6, 7, 11, 12)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, learner.module.state_dict()[name])


@pytest.mark.parametrize("stop_at", [1, 2, 3, 6, 8, 13])
def test_resuming_keeps_the_count(tmp_path, stop_at):
    whole, records, _ = run(tmp_path / "whole")
    with pytest.raises(Stopped):
        run(tmp_path / "cut", stop_at=stop_at)
    resumed, again, _ = run(tmp_path / "cut")
    assert resumed == whole
    assert again.skipped == records.skipped == (1, 2, 6, 7, 11, 12)


def test_every_channel_stays_trained_equally_often(tmp_path):
    learner = learner_of("supernet")
    planned = []
    plan = learner.plan
    learner.plan = lambda generator: planned.append(plan(generator)) or planned[-1]
    _, records, _ = run(tmp_path, learner=learner)
    trained = sorted(set(records.steps.tolist()))
    assert sorted((*trained, *records.skipped)) == list(range(15))
    counts = ChannelCounts(learner.supernet.space)
    for step in trained:
        counts.add(planned[step])
    assert counts.spread().tolist() == [0, 0]
    assert counts.of[0][0] >= 2 * len(trained)
    for counted, expected in zip(learner.counts.of, counts.of, strict=True):
        assert counted.tolist() == expected.tolist()


def test_a_gradient_scaler_goes_on_after_a_step_left_out():
    module = nn.Linear(2, 1)
    updates = Updates(module, SKIP, "fp16")
    before = module.weight.detach().clone()
    for step, factor in enumerate((math.nan, 1.0)):
        updates.begin()
        loss = factor * module(torch.ones(4, 2)).square().mean()
        updates.backward(loss)
        updates.measure(step, (), loss.detach()[None], 10)
        (seen,) = updates.finish(0.01, look=True)
        assert seen.verdict.bad == (step == 0)
        assert torch.equal(module.weight, before) == (step == 0)
    assert updates.scaler.get_scale() < 65536


class OfEveryType(nn.Module):
    """Tensors of several types, which `spoil` overwrites."""

    def __init__(self, count=1):
        super().__init__()
        values = torch.tensor([[1.5, -0.0], [torch.inf, 3.0]])
        for i in range(count):
            self.register_parameter(f"p{i}", nn.Parameter(values.t().clone().t()))
            for kind in (torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool):
                self.register_buffer(f"b{i}_{kind}".replace(".", "_"), values.nan_to_num(posinf=7.0).abs().to(kind))
            self.register_buffer(f"counter{i}", torch.tensor(3))

    @torch.no_grad()
    def spoil(self):
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.fill_(torch.nan if tensor.is_floating_point() else 0)


@pytest.mark.parametrize("bad", [True, False])
def test_a_step_is_undone_to_the_bit_where_it_is_bad(bad):
    module, spoilt = OfEveryType(), OfEveryType()
    spoilt.spoil()
    expected = state_of(module if bad else spoilt)
    undo = guard.Guard(module, torch.optim.SGD(module.parameters(), lr=0.1))
    undo.remember()
    with undo.undone_where(torch.tensor(bad)):
        module.spoil()
    for name, tensor in module.state_dict().items():
        assert tensor.flatten().view(torch.uint8).tolist() == expected[name].flatten().view(torch.uint8).tolist(), name


def test_undoing_many_tensors_takes_as_many_operators_as_undoing_few():
    def operators(count):
        module = OfEveryType(count)
        undo = guard.Guard(module, torch.optim.SGD(module.parameters(), lr=0.1))
        with Operators() as ran:
            undo.remember()
            with undo.undone_where(torch.tensor(False)):
                pass
        return sorted(ran.names)

    assert operators(1) == operators(20)


class Operators(TorchDispatchMode):
    """The names of the operators inside that start a kernel."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ not in ("detach", "view", "empty_like"):
            self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


# ---------------------------------------------------------------- stopped, gone on with


@pytest.mark.parametrize("kind", ["supernet", "network"])
@pytest.mark.parametrize("look_every", [1, 4])
def test_a_bad_step_stops_the_run_and_leaves_no_trace(monkeypatch, kind, look_every):
    monkeypatch.setitem(guard.LOOK_EVERY, "cpu", look_every)
    learner = learner_of(kind)
    with pytest.raises(TrainingError, match=r"step 3.*nothing of it reached the weights.*lower lr.*on_bad_step=skip"):
        train(learner, PoisonedBatches(3), RECIPE, seed=5, stage="first")
    healthy = learner_of(kind)
    with pytest.raises(Stopped):
        train(healthy, TinyBatches(), RECIPE, seed=5, stage="first", on_step=stopper(3))
    for name, tensor in healthy.module.state_dict().items():
        assert torch.equal(tensor, learner.module.state_dict()[name])


def test_a_stopped_run_goes_on_leaving_the_step_out(tmp_path):
    whole, _, _ = run(tmp_path / "whole", batches=PoisonedBatches(3))
    with pytest.raises(TrainingError):
        run(tmp_path / "cut", recipe=RECIPE, batches=PoisonedBatches(3))
    assert read_tensors(tmp_path / "cut" / "c.safetensors", IDENTITY)[1]["step"] == 2
    assert run(tmp_path / "cut", batches=PoisonedBatches(3))[0] == whole


def test_too_many_bad_steps_stop_the_run(tmp_path):
    recipe = SKIP.with_changes({"max_bad_steps": 3})
    with pytest.raises(TrainingError, match=r"step 4.*: 4 bad steps in a row, and max_bad_steps is 3"):
        run(tmp_path, recipe=recipe, batches=PoisonedBatches(1, 2, 3, 4))


@pytest.mark.parametrize("look_every", [1, 4])
def test_an_exploding_loss_stops_the_run(tmp_path, monkeypatch, look_every):
    class SuddenlyLarge(TinyBatches):
        def __len__(self):
            return 40

        def epoch(self, generator):
            for number in range(len(self)):
                rows = torch.randint(40, (8,), generator=generator)
                yield self.x[rows] * (1e6 if number >= 20 else 1), self.y[rows]

    monkeypatch.setitem(guard.LOOK_EVERY, "cpu", look_every)
    recipe = RECIPE.with_changes({"lr": 1e-9})
    with pytest.raises(TrainingError, match=r"stay above explosion_factor \(20\).*--set explosion_factor=null") as stop:
        run(tmp_path, recipe=recipe, batches=SuddenlyLarge())
    step = int(re.search(r"step (\d+)", str(stop.value))[1])
    assert 20 + PATIENCE - 1 <= step < 20 + PATIENCE + look_every


@pytest.mark.parametrize(("precision", "advised"), [("fp32", False), ("bf16", True)])
def test_full_precision_is_advised_where_it_was_not_taken(precision, advised):
    with pytest.raises(TrainingError) as stop:
        train(learner_of("network"), PoisonedBatches(3), RECIPE.with_changes({"precision": precision}), seed=5)
    assert ("take precision fp32" in str(stop.value)) == advised


def test_only_the_newest_step_that_was_looked_at_can_stop_a_run_by_its_verdict():
    updates = object.__new__(Updates)
    updates._recipe = SKIP
    high, fine = (Seen(1, (), (1.0,), 1.0, verdict) for verdict in (Verdict("x", stop=True), Verdict()))
    assert updates.offender([high, fine]) is None
    assert updates.offender([fine, high]) is high


def test_what_progress_tells_is_the_mean_loss_of_the_step():
    told = []
    records = train(
        learner_of("supernet"), TinyBatches(), RECIPE, seed=5, stage="first", on_step=lambda p: told.append(p.loss)
    )
    steps = np.array(records.steps)
    means = [records.losses[steps == step].mean() for step in range(len(told))]
    assert told == pytest.approx(means, rel=1e-5)


def test_the_fault_of_an_exploding_loss_counts_the_steps_before_it():
    health = Health(RECIPE)
    verdicts = [health.check(step, [loss], 1.0, 10) for step, loss in enumerate([2.3] * 50 + [47.0] * PATIENCE)]
    assert verdicts[-1].fault.endswith(f"got 47, and {PATIENCE - 1} before it")
