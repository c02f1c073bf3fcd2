"""Whole runs on several processes."""

import time

import pytest
import torch
from safetensors.torch import load_file
from tiny_job import RECIPE, Recorder, StoppedError, TinyNetwork, supernet_method, tiny_data, traces
from tiny_job import tiny_supernet_search as tiny_search
from torch import nn

import bcnet
from bcnet.errors import ProcessError, RecipeError, RunError, SearchError
from bcnet.searchers import SupernetEvaluator


def searched(world, folder, stop=None, changes=None):
    """A tiny run; what came out, as plain values."""
    recorder = Recorder(stop)
    outcome = tiny_search(folder, reporter=recorder, report=True, **(changes or {}))
    return {
        "widths": outcome.widths,
        "result": outcome.result,
        "evaluations": outcome.found,
        "weights": outcome.network.state_dict(),
        "heard": recorder.stages,
    }


@pytest.fixture(scope="module")
def together(processes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "two"
    return folder, processes.run(2, searched, folder)


def test_all_processes_get_the_result_and_one_tells_of_it(together):
    _, (lead, other) = together
    for key in ("widths", "result", "evaluations"):
        assert lead[key] == other[key]
    for name, tensor in lead["weights"].items():
        assert torch.equal(tensor, other["weights"][name])
    names = ["supernet", "prior", "evolution", "reliability", "original", "Uniform", "searched"]
    assert lead["heard"] == names
    assert other["heard"] == []
    assert lead["result"].device.processes == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "stop",
    [
        ("supernet", 3),
        pytest.param(("evolution", 3), marks=pytest.mark.slow),
        pytest.param(("searched", 4), marks=pytest.mark.slow),
    ],
)
def test_a_run_of_two_stopped_anywhere_ends_like_one_that_never_stopped(together, processes, tmp_path, stop):
    lead, other = processes.run(2, searched, tmp_path, stop)
    assert isinstance(lead, StoppedError)
    assert isinstance(other, ProcessError)  # it did not wait for the one that has gone
    again = processes.run(2, searched, tmp_path)
    assert traces(tmp_path) == traces(together[0])
    assert [found["result"].widths for found in again] == [together[1][0]["result"].widths] * 2


@pytest.mark.slow
def test_a_run_of_two_does_not_go_on_with_another_number(together, processes):
    folder, _ = together
    message = r"options.processes is 2 there and 1 here; .* resume with 2 processes \(torchrun\)"
    with pytest.raises(RunError, match=message):
        tiny_search(folder)
    for error in processes.run(3, searched, folder):
        assert isinstance(error, RunError)
        assert "options.processes is 2 there and 3 here" in str(error)


def of_random(world, folder):
    outcome = tiny_search(folder, method=bcnet.Random(networks=3, epochs=1, continued=True), start="scratch")
    return outcome.network.state_dict(), outcome.result.networks


def test_the_training_of_a_random_network_goes_on_together(processes, tmp_path):
    alone = of_random(None, tmp_path / "alone")
    first, second = processes.run(2, of_random, tmp_path / "two")
    assert first[1] == second[1]
    for name, tensor in first[0].items():
        assert torch.equal(second[0][name], tensor)
        torch.testing.assert_close(tensor, alone[0][name], rtol=0.05, atol=0.05)  # batch norm sees fewer images
    assert not [*(tmp_path / "two").rglob("trial-*")]


class WithoutBatchNorm(TinyNetwork):
    def __init__(self):
        super().__init__()
        self.first[1] = nn.Identity()
        self.second[1] = nn.Identity()
        self.second[3] = nn.Identity()


def test_the_number_of_processes_is_no_matter_to_a_network_whose_images_do_not_meet(processes, tmp_path):
    for size in (1, 3):
        processes.run(size, searched, tmp_path / str(size), ("prior", 1), {"model": WithoutBatchNorm})
    alone, together = (load_file(tmp_path / str(size) / "supernet.safetensors") for size in (1, 3))
    assert alone.keys() == together.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(together[name], tensor, rtol=1e-3, atol=1e-5)


def wrong(world, folder, changes):
    if "data" in changes:
        changes = {"data": tiny_data(120 + 6 * world.rank)}
    return tiny_search(folder / "run", **changes)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"training": RECIPE.with_changes({"batch_size": 2})}, RecipeError, "got batch_size 2 for 3 processes"),
        ({"data": None}, ProcessError, "all processes of a run must have the same data; process 0 has 'stripes"),
        ({"space": {"num_choices": 0}}, RecipeError, "'num_choices' must be greater than 0; got 0"),
    ],
)
def test_mistakes_are_found_by_all_before_anything_is_written(processes, tmp_path, changes, kind, message):
    errors = processes.run(3, wrong, tmp_path, changes)
    for error in errors:
        assert isinstance(error, kind)
        assert message in str(error)
    assert [error.repeated for error in errors].count(False) == 1
    assert not (tmp_path / "run").exists()


def failing_candidate(world, folder):
    whole = SupernetEvaluator.__call__

    def score(self, widths):
        if world.rank == 1:
            raise RuntimeError("out of memory")
        time.sleep(0.005)  # so that process 1 gets its turn
        return whole(self, widths)

    SupernetEvaluator.__call__ = score
    try:
        return tiny_search(folder, method=supernet_method(generations=20), space={"num_choices": 8})
    finally:
        SupernetEvaluator.__call__ = whole


def test_a_candidate_that_fails_on_one_process_stops_all_with_its_widths(processes, tmp_path):
    for error in processes.run(3, failing_candidate, tmp_path):
        assert isinstance(error, SearchError)
        assert "the score of widths (" in str(error)
        assert "raised RuntimeError: out of memory" in str(error)
    assert not (tmp_path / "result.json").exists()
