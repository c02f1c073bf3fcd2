"""The method Inherited: paths propose, short trainings of the best decide."""

import json

import pytest
from tiny_job import RECIPE, Recorder, StoppedError, TinyNetwork, tiny_search

import bcnet
from bcnet.errors import RecipeError
from bcnet.methods.base import Request

FEW = bcnet.Inherited(networks=12, finalists=3)


def inherited_search(folder, **changes):
    return tiny_search(folder, **({"method": FEW} | changes))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "finished"
    recorder = Recorder()
    outcome = inherited_search(folder, reporter=recorder)
    return folder, outcome, recorder.stages


def decided(folder):
    """All that led to the widths, and the weights."""
    document = json.loads((folder / "result.json").read_text())
    names = ("supernet", "original", "final")
    weights = [(folder / f"{name}.safetensors").read_bytes() for name in names]
    return document["search"], document["networks"], weights


def test_paths_are_scored_first_and_the_best_are_trained(finished):
    _, outcome, stages = finished
    order = ["original", "supernet", "evolution", "reliability", "finalists", "Uniform", "searched"]
    assert stages == order
    search = outcome.result.search
    assert 3 < search.evaluations <= 12, "the space has few widths within the budget"
    assert len(search.rescored) == 3
    assert search.finalist_epochs == 1


def test_the_widths_are_those_that_are_best_once_trained(finished):
    _, outcome, _ = finished
    rescored = outcome.result.search.rescored
    assert outcome.widths == max(rescored, key=lambda one: one.fresh_score).widths
    scores = {one.widths: one.score for one in rescored}
    assert len({*scores.values()}) > 1, "paths had told them apart"


def test_what_the_paths_say_is_overruled_by_trainings(tmp_path, monkeypatch):
    """The finalist that paths like the least wins where its training scores best."""
    from bcnet.stages.scores import NetworkScores

    own = NetworkScores.per_image
    liked = []

    def reversed_scores(scores, widths):
        liked.append(widths)
        return own(scores, widths) * 0 + len(liked)

    monkeypatch.setattr(NetworkScores, "per_image", reversed_scores)
    outcome = inherited_search(tmp_path, until="widths")
    assert len(liked) == 3
    assert outcome.widths == liked[-1]


@pytest.mark.parametrize("place", [("evolution", 5), ("finalists", 2)])
def test_stopped_it_goes_on_to_the_same(finished, tmp_path, place):
    with pytest.raises(StoppedError):
        inherited_search(tmp_path, reporter=Recorder(place))
    recorder = Recorder()
    inherited_search(tmp_path, reporter=recorder)
    assert "supernet" not in recorder.stages
    assert decided(tmp_path) == decided(finished[0])


def test_side_by_side_the_finalists_are_the_same(finished, tmp_path):
    inherited_search(tmp_path, options={"threads": 2, "candidate_threads": 1, "at_once": 2})
    mine, theirs = decided(tmp_path), decided(finished[0])
    assert [one["widths"] for one in mine[0]["rescored"]] == [one["widths"] for one in theirs[0]["rescored"]]


def test_another_budget_trains_no_supernet_again(finished, tmp_path):
    recorder = Recorder()
    inherited_search(tmp_path, budget=bcnet.Budget(macs=0.35), reuse=finished[0], reporter=recorder)
    assert recorder.stages == ["evolution", "reliability", "finalists", "Uniform", "searched"]


def test_a_trained_network_is_imitated(tmp_path):
    recorder = Recorder()
    inherited_search(tmp_path, model=TinyNetwork(), task="imitation", reporter=recorder, until="widths")
    assert recorder.stages == ["supernet", "evolution", "reliability", "finalists"]


def test_epochs_follow_those_of_final_networks():
    def completed(whole, **fields):
        request = Request(RECIPE.with_changes({"epochs": whole}), "original", 0.8, bcnet.Budget(macs=0.5), lambda: None)
        method = bcnet.Inherited(**fields).complete(request)
        return method.epochs, method.recipe.epochs, method.finalist_epochs

    assert completed(3) == (1, 1, 1)
    assert completed(100) == (10, 10, 5)
    assert completed(100, epochs=4, finalist_epochs=0.5) == (4, 4, 0.5)


@pytest.mark.parametrize("changes", [{"start": "scratch"}, {"space": {"widen": 1.5}}])
def test_fresh_weights_are_refused(tmp_path, changes):
    with pytest.raises(RecipeError, match=r"inherited trains from the weights of the original; got start='scratch'"):
        inherited_search(tmp_path, **changes)


@pytest.mark.parametrize("fields", [{"start": "scratch"}, {"reach": 0.5}, {"searcher": "evolution"}, {"finalists": 0}])
def test_fields_that_make_no_sense_are_refused(fields):
    with pytest.raises(RecipeError, match="Inherited: "):
        bcnet.Inherited(**fields)
