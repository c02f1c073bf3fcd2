"""Searches whose candidates are trained by themselves: found by the model of their scores, stopped, refused."""

import numpy as np
import pytest
import torch
from tiny_job import Recorder, StoppedError, TinyNetwork, supernet_method, tiny_data, tiny_search
from torch.nn import functional

import bcnet
from bcnet import Trainings
from bcnet.distributed import ProcessGroup
from bcnet.errors import RecipeError
from bcnet.export.card import model_card
from bcnet.files.documents import read_document
from bcnet.run.directory import RunDirectory
from bcnet.run.finished import FinishedRun
from bcnet.run.workload import open_source, prepare
from bcnet.searchers import ModelBased, Random, heuristic_widths
from bcnet.space import Budget
from bcnet.space.problem import Problem
from bcnet.stages.base import Context
from bcnet.stages.scores import NetworkScores
from bcnet.stages.starting import starting_network
from bcnet.train import NetworkLearner, train

SHORT = Trainings(networks=10, epochs=1, finalists=1)
TRAINED = {"method": SHORT, "start": "scratch", "space": {"num_choices": 8}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return folder, tiny_search(folder, report=True, **TRAINED)


def test_candidates_are_trained_and_the_model_chooses(whole):
    folder, outcome = whole
    assert not (folder / "supernet.safetensors").exists()
    assert not (folder / "prior.json").exists()
    candidates = outcome.found.evaluations
    assert len(candidates) == 10
    assert len({c.widths for c in candidates}) == 10
    assert all(np.isfinite(c.score) and c.score < 0 for c in candidates)
    run = bcnet.Run.open(folder)
    problem = Problem.of(run.space, Budget(macs=0.5))
    chosen = ModelBased(10, reach=run.settings.method.reach).choose(problem, candidates)
    scores = {c.widths: c.score for c in candidates}
    free = max(scores[widths] for widths in heuristic_widths(problem).values())
    assert outcome.widths == next(c.widths for c in chosen if c.score >= free)
    assert "scored by a short training of its own" in (folder / "report.html").read_text()
    assert bcnet.Run.open(folder).settings.method.searcher == "model"


def test_a_score_is_that_of_a_training_of_its_own(whole):
    folder, outcome = whole
    candidate = outcome.found.evaluations[3]
    only = SHORT.model_copy(update={"searcher": Only((candidate.widths,)), "networks": 1})
    again = tiny_search(folder.parent / "again", **TRAINED | {"method": only})
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
        tiny_search(tmp_path, reporter=Recorder(("trials", 6)), **TRAINED)
    tiny_search(tmp_path, **TRAINED)
    mine, theirs = (read_document(f / "result.json") for f in (tmp_path, folder))
    assert mine["networks"] == theirs["networks"]
    for name in ("searched", "uniform", "original"):
        file = f"{'final' if name == 'searched' else name}.safetensors"
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


def test_candidates_of_a_part_of_an_epoch_see_that_part_of_the_batches(tmp_path, monkeypatch):
    trained = []

    def noted(learner, batches, recipe, **how):
        if "trial" in str(how["checkpoints"].path):
            trained.append((len(batches), len(list(batches.epoch(torch.Generator()))), recipe.epochs, how["until"]))
        return train(learner, batches, recipe, **how)

    monkeypatch.setattr("bcnet.stages.starting.train", noted)
    half = TRAINED | {"method": SHORT.model_copy(update={"epochs": 0.5}), "training": {"epochs": 2, "batch_size": 8}}
    tiny_search(tmp_path / "whole", **half)
    assert set(trained) == {(4, 4, 1, 1)}, "72 images are nine batches of 8, half of them four"
    with pytest.raises(StoppedError):
        tiny_search(tmp_path / "cut", reporter=Recorder(("trials", 6)), **half)
    again = tiny_search(tmp_path / "cut", **half)
    assert again.result.networks == bcnet.Run.open(tmp_path / "whole").result.networks
    assert "0.5 epochs each" in model_card(FinishedRun.read(tmp_path / "cut", TinyNetwork), [])
    ended = bcnet.Run.open(tmp_path / "cut").status
    assert ended.state == "finished"


def searched(world, folder):
    outcome = tiny_search(folder, **TRAINED)
    return outcome.widths, [c.score for c in outcome.found.evaluations]


@pytest.mark.slow
def test_candidates_are_shared_out_among_processes(processes, tmp_path):
    first, second = processes.run(2, searched, tmp_path / "two")
    assert first == second
    assert len(set(first[1])) > 5


def test_the_model_chooses_of_paths_as_well(tmp_path):
    outcome = tiny_search(
        tmp_path, method=supernet_method(population=12, generations=1, searcher="model"), space={"num_choices": 8}
    )
    assert (tmp_path / "supernet.safetensors").exists()
    assert not (tmp_path / "prior.json").exists()
    candidates, space = outcome.found.evaluations, bcnet.Run.open(tmp_path).space
    assert len(candidates) == 12
    chosen = ModelBased(12, trust=0.5).choose(Problem.of(space, Budget(macs=0.5)), candidates)
    assert outcome.widths == chosen[0].widths


LONGER = TRAINED | {"method": SHORT.model_copy(update={"finalist_epochs": 2, "finalists": 3})}


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("longer")
    return folder, tiny_search(folder, report=True, **LONGER)


def test_the_best_are_trained_for_longer_which_decides(longer, whole):
    folder, outcome = longer
    search = outcome.result.search
    rows = search.rescored
    assert outcome.found.evaluations == whole[1].found.evaluations, "the search before is the same"
    assert outcome.widths == tuple(max(rows, key=lambda row: row.fresh_score).widths)
    run = bcnet.Run.open(folder)
    problem = Problem.of(run.space, Budget(macs=0.5))
    best = ModelBased(10, reach=run.settings.method.reach).choose(problem, outcome.found.evaluations)[0].widths
    finalists = [tuple(row.widths) for row in rows]
    assert 1 < len(finalists) <= 3
    assert best in finalists
    for name, widths in heuristic_widths(problem).items():
        near = min(np.mean(np.abs(np.subtract(widths, other)) / run.space.full) for other in finalists)
        assert near < 1 / run.settings.space.num_choices, f"{name} is a finalist, or a near copy of one"
    page = (folder / "report.html").read_text()
    assert "The best of them were then trained for 2 epochs, which decided." in page
    assert "after 2 epochs of training" in page


def test_a_second_score_is_that_of_a_longer_training_on_fresh_images(longer):
    folder, outcome = longer
    settings = bcnet.Run.open(folder).settings
    workload = prepare(open_source(TinyNetwork, tiny_data(), image_size=None, seed=0), settings)
    row = outcome.result.search.rescored[0]
    here = Context(settings, workload, RunDirectory(folder, settings), bcnet.Reporter(), ProcessGroup())
    network = starting_network(here, tuple(row.widths))
    recipe = settings.training.with_changes({"epochs": 2})
    train(
        NetworkLearner(network, workload.source.task),
        workload.training_batches,
        recipe,
        seed=settings.seed,
        stage="final",
    )
    with torch.no_grad():
        losses = [functional.cross_entropy(network.eval()(x), y, reduction="none") for x, y in workload.fresh]
    assert row.fresh_score == pytest.approx(-float(torch.cat(losses).mean()), abs=1e-5)
    assert outcome.result.search.fresh_images == sum(len(y) for _, y in workload.fresh)


@pytest.mark.parametrize("finished", [1, 2])
def test_finalists_that_were_killed_go_on_as_if_they_had_not_been(longer, tmp_path, finished):
    folder, _ = longer
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, reporter=Recorder(("finalists", finished)), **LONGER)
    tiny_search(tmp_path, **LONGER)
    mine, theirs = (read_document(f / "result.json") for f in (tmp_path, folder))
    assert mine["search"] == theirs["search"]
    assert mine["networks"] == theirs["networks"]
    assert (tmp_path / "final.safetensors").read_bytes() == (folder / "final.safetensors").read_bytes()
    assert not list(tmp_path.rglob("trial-*"))


def test_a_finalist_that_was_trained_and_not_yet_scored_is_not_trained_again(longer, tmp_path, monkeypatch):
    folder, _ = longer

    whole = NetworkScores.per_image

    def stopped(scores, widths):
        if scores.epochs == 1:
            return whole(scores, widths)
        with scores.network(widths):
            raise StoppedError

    with monkeypatch.context() as patched:
        patched.setattr(NetworkScores, "per_image", stopped)
        with pytest.raises(StoppedError):
            tiny_search(tmp_path, **LONGER)
    (kept,) = tmp_path.rglob("trial-*.safetensors")
    before = kept.stat().st_mtime_ns
    with monkeypatch.context() as patched:
        patched.setattr(NetworkScores, "per_image", stopped)
        with pytest.raises(StoppedError):
            tiny_search(tmp_path, **LONGER)
    assert kept.stat().st_mtime_ns == before
    tiny_search(tmp_path, **LONGER)
    mine, theirs = (read_document(f / "result.json") for f in (tmp_path, folder))
    assert mine["search"] == theirs["search"]


@pytest.mark.parametrize(
    ("method", "start", "message"),
    [
        ({"searcher": "evolution"}, "scratch", "'searcher' must be one of model, greedy, random, .*; got 'evolution'"),
        ({}, "supernet", "needs a supernet, which the method trainings does not train"),
        ({"finalist_epochs": 1}, "scratch", "must be more than the 1 epochs of all candidates, .* the 2 of .*; got 1"),
        ({"finalist_epochs": 3}, "scratch", "at most the 2 of final networks; got 3"),
        ({"finalist_epochs": 0}, "scratch", "finalist_epochs"),
        ({"reach": 0.9}, "scratch", "a factor above 1, or 0 for any"),
    ],
)
def test_what_trainings_do_not_go_with_is_refused(tmp_path, method, start, message):
    with pytest.raises(RecipeError, match=message):
        tiny_search(tmp_path / "run", method=Trainings(networks=10, epochs=1, **method), start=start)
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_supernet_has_none_to_reuse(whole, tmp_path):
    folder, _ = whole
    recorder = Recorder()
    tiny_search(tmp_path, reuse=folder, method=supernet_method(), space={"num_choices": 8}, reporter=recorder)
    assert "supernet" in recorder.stages
    assert "original" not in recorder.stages
