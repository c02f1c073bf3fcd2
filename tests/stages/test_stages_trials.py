"""Searches whose candidates are trained by themselves: found by the model of their scores, stopped, refused."""

import numpy as np
import pytest
from tiny_job import Recorder, StoppedError, TinyNetwork, tiny_data, tiny_search

import bcnet
from bcnet.errors import RecipeError, RunError
from bcnet.files.documents import read_document
from bcnet.searchers import ModelBased, Random
from bcnet.space import Budget
from bcnet.space.problem import Problem

TRAINED = {"scorer": "trainings", "searcher": "model", "random_networks": 10, "random_epochs": 1}
TRAINED |= {"score": "loss", "num_choices": 8}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return folder, tiny_search(folder, **TRAINED)


def test_candidates_are_trained_and_the_model_chooses(whole):
    folder, outcome = whole
    assert not (folder / "supernet.safetensors").exists()
    assert not (folder / "prior.json").exists()
    candidates = outcome.found.evaluations
    assert len(candidates) == 10
    assert len({c.widths for c in candidates}) == 10
    assert all(np.isfinite(c.score) and c.score < 0 for c in candidates)
    space = bcnet.Run.open(folder).space
    chosen = ModelBased(10).chosen(Problem.of(space, Budget(macs=0.5)), candidates)
    assert outcome.widths == chosen[0].widths
    assert "scored by a short training of its own" in (folder / "report.html").read_text()
    assert bcnet.Run.open(folder).settings.searcher == "model"


def test_a_score_is_that_of_a_training_of_its_own(whole):
    folder, outcome = whole
    candidate = outcome.found.evaluations[3]
    again = tiny_search(
        folder.parent / "again", **TRAINED | {"searcher": Only((candidate.widths,)), "random_networks": 1}
    )
    assert again.found.evaluations[0].score == candidate.score


class Only(Random):
    """The widths that it was given."""

    def __init__(self, widths):
        object.__setattr__(self, "given", widths)
        super().__init__(evaluations=len(widths))

    def proposals(self, problem):
        yield list(self.given)


def test_a_killed_search_goes_on_as_if_it_had_not_been(whole, tmp_path):
    folder, _ = whole
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, **TRAINED, reporter=Recorder(("trials", 6)))
    tiny_search(tmp_path, **TRAINED)
    mine, theirs = (read_document(f / "result.json") for f in (tmp_path, folder))
    assert mine["networks"] == theirs["networks"]
    for name in ("searched", "uniform", "original"):
        file = f"{'final' if name == 'searched' else name}.safetensors"
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


def searched(world, folder):
    outcome = tiny_search(folder, **TRAINED)
    return outcome.widths, [c.score for c in outcome.found.evaluations]


@pytest.mark.slow
def test_candidates_are_shared_out_among_processes(processes, tmp_path):
    first, second = processes.run(2, searched, tmp_path / "two")
    assert first == second
    assert len(set(first[1])) > 5


def test_the_model_chooses_of_paths_as_well(tmp_path):
    outcome = tiny_search(tmp_path, searcher="model", population=12, generations=1, num_choices=8)
    assert (tmp_path / "supernet.safetensors").exists()
    assert not (tmp_path / "prior.json").exists()
    candidates, space = outcome.found.evaluations, bcnet.Run.open(tmp_path).space
    assert len(candidates) == 12
    chosen = ModelBased(12, trust=0.5).chosen(Problem.of(space, Budget(macs=0.5)), candidates)
    assert outcome.widths == chosen[0].widths


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"searcher": "evolution"}, "the searcher evolution starts from a prior .* take searcher model, greedy or ran"),
        ({"tune_steps": 3}, "of which the scorer 'trainings' makes no use; got 3"),
        ({"final_from": "supernet"}, "a supernet, which the scorer 'trainings' has none of"),
        ({"scorer": "guess"}, "'scorer' must be 'supernet' or 'trainings'; got 'guess'"),
    ],
)
def test_what_trainings_do_not_go_with_is_refused(tmp_path, changes, message):
    with pytest.raises(RecipeError, match=message):
        tiny_search(tmp_path / "run", **TRAINED | changes)
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_supernet_cannot_be_searched_again(whole, tmp_path):
    folder, _ = whole
    with pytest.raises(RunError, match="a search needs a trained supernet"):
        bcnet.evolve(folder, run_dir=tmp_path / "new", population=4)


def test_its_networks_are_not_fine_tuned_from_a_supernet_there_is_not(whole, tmp_path):
    folder, _ = whole
    with pytest.raises(RecipeError, match="needs a supernet, which the scorer 'trainings' has none of"):
        bcnet.retrain(folder, run_dir=tmp_path / "new", final_from="supernet", model=TinyNetwork, data=tiny_data())
    assert not (tmp_path / "new").exists()
