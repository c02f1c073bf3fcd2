"""Early stopping: when a training ends, what it leaves, and that a stop on the way changes neither."""

import math

import pytest
import torch
from test_train_loop import IDENTITY, RECIPE, StoppedError, plain_network, stopper
from tiny_job import Recorder, tiny_search

import bcnet
from bcnet.run.result import Ended
from bcnet.stages import final, scores
from bcnet.train import Checkpoints, EarlyStopping, NetworkLearner, train

LONG = RECIPE.with_changes({"epochs": 6, "lr": 0.2})
STEPS = 5  # of an epoch


def fresh():
    torch.manual_seed(0)
    return plain_network()


def told(*losses):
    """Held-out losses told one after the other, whatever the network."""
    left = list(losses)

    def loss(network):
        assert not network.training
        return left.pop(0)

    return loss


def of_weights(network):
    """A held-out loss that depends on the weights and rises and falls."""
    assert not network.training
    with torch.no_grad():
        return math.sin(1e3 * float(network[6].weight.sum()))


@pytest.mark.parametrize(
    ("losses", "patience", "ended"),
    [
        ((3, 2, 2, 4, 9), 2, (4, 2)),  # an equal loss is no better
        ((3, 2, 1, 2, 1.5, 0.5), 3, (6, 6)),
        ((1, 2), 1, (2, 1)),
        ((math.nan, 2, math.nan, 3), 2, (4, 2)),
        ((math.nan, math.nan), 2, (2, 2)),  # no best: the last weights stay
    ],
)
def test_a_training_ends_after_so_many_epochs_without_a_new_best(tiny_batches, losses, patience, ended):
    network, whole, steps = fresh(), fresh(), []
    stopping = EarlyStopping(patience, told(*losses))
    records = train(NetworkLearner(network), tiny_batches, LONG, seed=5, stopping=stopping, on_step=steps.append)
    assert records.ended == ended
    assert len(steps) == ended[0] * STEPS
    train(NetworkLearner(whole), tiny_batches, LONG, seed=5, until=ended[1])
    for name, tensor in whole.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor), name


@pytest.mark.parametrize("ema", [None, 0.8])
@pytest.mark.parametrize("stop_at", [3, STEPS, 2 * STEPS, 2 * STEPS + 1, 3 * STEPS])
def test_a_stop_on_the_way_changes_neither_the_end_nor_the_weights(tiny_batches, tmp_path, stop_at, ema):
    recipe = LONG.with_changes({"ema": ema})

    def go(name, **hooks):
        network = fresh()
        records = train(
            NetworkLearner(network),
            tiny_batches,
            recipe,
            seed=5,
            checkpoints=Checkpoints(tmp_path / f"{name}.safetensors", IDENTITY, every_steps=1),
            stopping=EarlyStopping(2, of_weights),
            **hooks,
        )
        return records.ended, network.state_dict()

    ended, weights = go("whole")
    assert ended[1] < ended[0], "the best epoch is not the last one"
    assert ended[0] * STEPS >= stop_at
    with pytest.raises(StoppedError):
        go("cut", on_step=stopper(stop_at))
    again, same = go("cut")
    assert again == ended
    for name, tensor in weights.items():
        assert torch.equal(same[name], tensor), name


def test_the_best_average_is_left_where_weights_are_averaged(tiny_batches):
    seen = []

    def loss(network):
        seen.append({name: tensor.clone() for name, tensor in network.state_dict().items()})
        return len(seen) != 2

    network = fresh()
    recipe = LONG.with_changes({"ema": 0.9})
    train(NetworkLearner(network), tiny_batches, recipe, seed=5, stopping=EarlyStopping(1, loss))
    assert len(seen) == 3
    for name, tensor in seen[1].items():
        assert torch.equal(network.state_dict()[name], tensor), name


class Steps(Recorder):
    """Remembers how many steps a stage may take."""

    def __init__(self):
        super().__init__()
        self.totals = {}

    def stage(self, name, total, unit):
        self.totals[name] = total
        return super().stage(name, total, unit)


def test_final_networks_end_early_and_learn_from_no_image_that_ends_them(tmp_path, monkeypatch):
    measured = []

    def rising(context, network):
        measured.append(scores.held_out_loss(context, network))
        return measured[-1] + 100 * len(measured)

    monkeypatch.setattr(final, "held_out_loss", rising)
    steps = Steps()
    changes = {"early_stopping": 2, "epochs": 9}
    found = tiny_search(tmp_path, method=bcnet.Uniform(), training=changes, reporter=steps, report=True)
    ended = Ended(epochs=3, best=1)
    assert found.result.stopped_early == {"original": ended, "Uniform": ended, "searched": ended}
    # Of 90 training images 72 are not held out: four batches of 16, where all of them make five.
    assert steps.totals["original"] == steps.totals["Uniform"] == 9 * 4
    assert len(measured) == 2 * 3, "Uniform is not trained twice"
    assert all(0 < loss < 10 for loss in measured)
    assert bcnet.Run.open(tmp_path).result.stopped_early == found.result.stopped_early
    told = "Early stopping ended the training of original after epoch 3 (best: 1), Uniform after"
    assert told in (tmp_path / "report.html").read_text()


def test_without_it_networks_learn_from_all_images_and_nothing_is_told(tmp_path):
    steps = Steps()
    found = tiny_search(tmp_path, method=bcnet.Uniform(), reporter=steps)
    assert steps.totals["original"] == 2 * 5
    assert found.result.stopped_early == {}
