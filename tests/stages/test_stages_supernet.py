"""A supernet that starts from the trained original: its weights, its stages, and what other runs may take of it."""

import json

import pytest
import torch
from safetensors.torch import load_file
from tiny_job import RECIPE, Recorder, StoppedError, TinyNetwork, supernet_method, tiny_search

import bcnet
from bcnet.errors import RecipeError
from bcnet.space import Side
from bcnet.supernet import by_importance

INHERITS = supernet_method(start="trained")
STILL = supernet_method(start="trained", training={"lr": 1e-30, "weight_decay": 0.0, "epochs": 1})
"""The same, which learns nothing."""


def outputs(network, x):
    """What a network gives by the statistics of the batch."""
    for norm in (m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)):
        norm.track_running_stats, norm.running_mean, norm.running_var = False, None, None
    with torch.no_grad():
        return network.eval()(x)


def files_of(folder):
    names = ("supernet", "original", "final")
    weights = {name: (folder / f"{name}.safetensors").read_bytes() for name in names}
    result = json.loads((folder / "result.json").read_text())
    return weights, {key: result[key] for key in ("search", "networks", "groups")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "finished"
    tiny_search(folder, method=INHERITS)
    return folder


def test_at_full_width_it_computes_what_the_original_does(tmp_path):
    x = torch.rand(5, 1, 8, 8)
    supernet = tiny_search(tmp_path, method=STILL, until="prior").supernet
    tiny_search(tmp_path, method=STILL)
    original = TinyNetwork()
    original.load_state_dict(load_file(tmp_path / "original.safetensors"))
    expected = outputs(original, x)
    for side in Side:
        with torch.no_grad():
            torch.testing.assert_close(supernet(x, supernet.space.full, side), expected, rtol=1e-4, atol=1e-4)


def test_paths_from_both_ends_keep_as_much_of_it(tmp_path):
    found = tiny_search(tmp_path, method=STILL, until="prior")
    model = TinyNetwork()
    model.load_state_dict(found.supernet.network.state_dict(), strict=False)  # it has no running statistics
    for group, order in zip(found.space.groups, by_importance(model, found.space), strict=True):
        most = order[: len(order) // 2]
        left = sum(c < group.max_width // 2 for c in most)
        assert abs(2 * left - len(most)) <= 1, "half of the important channels are on each side"


def test_the_original_comes_first_and_step_by_step_is_as_at_once(finished, tmp_path):
    stages = []
    for until in ("prior", "widths", "network", None):
        recorder = Recorder()
        tiny_search(tmp_path, method=INHERITS, until=until, reporter=recorder)
        stages.append(recorder.stages)
    assert stages == [
        ["original", "supernet", "prior"],
        ["evolution", "reliability"],
        ["evolution", "searched"],
        ["evolution", "Uniform"],
    ]
    assert files_of(tmp_path) == files_of(finished)


@pytest.mark.parametrize("place", [("original", 2), ("supernet", 2)])
def test_stopped_it_goes_on_to_the_same(finished, tmp_path, place):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, method=INHERITS, reporter=Recorder(place))
    tiny_search(tmp_path, method=INHERITS)
    assert files_of(tmp_path) == files_of(finished)


def test_another_budget_takes_both_over(finished, tmp_path):
    recorder = Recorder()
    tiny_search(tmp_path, method=INHERITS, budget=bcnet.Budget(macs=0.35), reuse=finished, reporter=recorder)
    assert recorder.stages == ["prior", "evolution", "reliability", "Uniform", "searched"]


def test_another_original_needs_another_supernet(finished, tmp_path):
    recorder = Recorder()
    longer = RECIPE.with_changes({"epochs": 3})
    method = supernet_method(start="trained", training=RECIPE)
    tiny_search(tmp_path / "a", method=method, until="prior")
    tiny_search(tmp_path / "b", method=method, training=longer, reuse=tmp_path / "a", until="prior", reporter=recorder)
    assert recorder.stages == ["original", "supernet", "prior"]


def test_weights_that_are_given_are_started_from(tmp_path):
    torch.manual_seed(3)
    model = TinyNetwork()
    recorder = Recorder()
    outcome = tiny_search(tmp_path, model=model, start="pretrained", method=STILL, until="prior", reporter=recorder)
    assert recorder.stages == ["supernet", "prior"], "nothing is trained before it"
    x = torch.rand(5, 1, 8, 8)
    with torch.no_grad():
        found = outcome.supernet(x, outcome.space.full, Side.LEFT)
    torch.testing.assert_close(found, outputs(model, x), rtol=1e-4, atol=1e-4)


def test_final_networks_start_from_trained_weights_too(finished):
    assert bcnet.Run.open(finished).settings.start == "original"


@pytest.mark.parametrize(
    ("changes", "got"),
    [({"start": "supernet"}, "start='supernet'"), ({"space": {"widen": 1.5}}, "widen 1.5")],
)
def test_an_original_that_it_cannot_start_from_is_refused(tmp_path, changes, got):
    with pytest.raises(RecipeError, match=f"as wide as that, and the original does not.*got {got}"):
        tiny_search(tmp_path, method=INHERITS, **changes)
