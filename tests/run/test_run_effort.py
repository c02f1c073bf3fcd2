"""What a search spends, said in trainings of the original: the settings that it comes to, and what it refuses."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_job import RECIPE, TinyNetwork, tiny_data, tiny_search

import bcnet
from bcnet.api import preview
from bcnet.errors import BudgetError, RecipeError
from bcnet.run.effort import DECIDED, EFFORTS, FEWEST, SAYS_HOW, USUAL, says_how, settings_of
from bcnet.space import Budget
from bcnet.testing.searchers import toy_space
from bcnet.train import Recipe

SPACE = toy_space(4)


def final(epochs):
    return Recipe(lr=0.1, batch_size=8, epochs=epochs)


EFFORT = st.sampled_from(sorted(EFFORTS))


@given(EFFORT, st.integers(1, 400), st.floats(0.05, 1.0), st.floats(0.3, 0.98), st.booleans())
def test_networks_and_epochs_cost_the_trainings_asked_for(name, epochs, ratio, seen, from_scratch):
    found = settings_of(name, SPACE, Budget(macs=ratio), final(epochs), seen, from_scratch=from_scratch)
    uniform = SPACE.cost(SPACE.uniform(macs=ratio)).macs / SPACE.reference.macs
    epoch = seen * math.sqrt(uniform) / epochs
    networks, longer = found["random_networks"], found["finalist_epochs"]
    assert (found["scorer"], found["searcher"]) == ("trainings", "model")
    assert 1 <= found["random_epochs"] <= epochs
    assert longer in (None, epochs)
    assert longer is None or found["random_epochs"] < epochs
    best = (longer or 0) * found["rescored"] * epoch
    spent = networks * found["random_epochs"] * epoch + best
    assert networks == FEWEST or spent <= EFFORTS[name].trainings < spent + found["random_epochs"] * epoch


def test_more_effort_trains_for_more_epochs():
    budget = Budget(macs=0.5)
    found = [settings_of(name, SPACE, budget, final(100), 0.8, from_scratch=True) for name in EFFORTS]
    assert [*EFFORTS] == ["small", "medium", "large"]
    assert [(f["random_epochs"], f["finalist_epochs"]) for f in found] == [(10, None), (20, 100), (30, 100)]
    epochs = [f["random_networks"] * f["random_epochs"] + f["rescored"] * (f["finalist_epochs"] or 0) for f in found]
    assert epochs == sorted(set(epochs))


def test_candidates_from_trained_weights_take_fewer_epochs_and_are_more():
    for name in EFFORTS:
        scratch, tuned = (
            settings_of(name, SPACE, Budget(macs=0.5), final(100), 0.8, from_scratch=start) for start in (True, False)
        )
        assert tuned["random_epochs"] == 5 < scratch["random_epochs"]
        assert tuned["random_networks"] > scratch["random_networks"]
        assert (tuned["rescored"], tuned["finalist_epochs"]) == (1, None), "they are told apart without whole trainings"


def test_networks_start_from_the_original_unless_told_otherwise(tmp_path):
    asked = {"budget": Budget(macs=0.5), "run_dir": tmp_path, "effort": "small"}
    weights = TinyNetwork().state_dict()
    for changes, start in (
        ({}, "original"),
        ({"pretrained": weights}, "pretrained"),
        ({"final_from": "scratch"}, "scratch"),
        ({"supernet_width": 1.5}, "scratch"),
    ):
        assert preview(TinyNetwork, tiny_data(), **asked, **changes).settings.final_from == start


def test_a_budget_below_the_narrowest_network_is_told():
    with pytest.raises(BudgetError, match="must admit the narrowest uniform network"):
        settings_of("small", SPACE, Budget(macs=1), final(10), 0.8, from_scratch=True)


def test_a_search_of_an_effort_is_one_of_its_settings_and_scores_by_loss(tmp_path):
    tiny_search(tmp_path / "run", effort="small")
    settings = bcnet.Run.open(tmp_path / "run").settings
    assert (settings.scorer, settings.searcher, settings.score) == ("trainings", "model", "loss")
    assert settings.random_networks >= FEWEST
    assert settings.random_epochs == 1


def test_an_effort_may_be_spent_on_a_score_of_widths_which_is_final(tmp_path):
    outcome = tiny_search(tmp_path / "run", effort="large", score_of_widths=most)
    settings = bcnet.Run.open(tmp_path / "run").settings
    assert (settings.finalist_epochs, settings.has_trials) == (None, True)
    assert settings.random_networks > FEWEST
    assert outcome.result["search"]["fresh_images"] == 0


def most(widths):
    return float(sum(widths))


def test_the_score_asked_for_stays(tmp_path):
    asked = {"budget": Budget(macs=0.5), "run_dir": tmp_path, "effort": "large", "score": "accuracy"}
    found = preview("resnet_digits", "digits", **asked)
    assert found.settings.score == "accuracy"
    assert found.settings.random_networks > FEWEST


def settings_with(folder, **arguments):
    return preview(TinyNetwork, tiny_data(), budget=Budget(macs=0.5), run_dir=folder, **arguments).settings


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"seed": 3, "num_choices": 5, "threads": 1},
        {"score": "accuracy", "score_batch_size": 16},
        {"reach": 2.0, "validation_fraction": 0.2},
        {"changes": {"epochs": 4, "final.lr": 0.1}},
        {"final_from": "scratch"},
        {"pretrained": TinyNetwork().state_dict()},
    ],
)
def test_a_search_that_is_not_told_how_is_of_the_usual_effort(arguments, tmp_path):
    found = settings_with(tmp_path, **arguments)
    assert found == settings_with(tmp_path, effort=USUAL, **arguments)
    assert (USUAL, found.scorer, found.searcher) == ("medium", "trainings", "model")


@pytest.mark.parametrize(
    "arguments",
    [
        {"scorer": "supernet"},
        {"strategy": "unilateral"},
        {"searcher": "greedy"},
        {"population": 4},
        {"pairs": "off"},
        {"keep_records": 100},
        {"tune_steps": 2},
        {"supernet_width": 1.5},
        {"supernet_epochs": 2},
        {"changes": {"supernet.lr": 0.1}},
        {"preset": "paper"},
        {"final_from": "supernet"},
    ],
)
def test_what_only_a_supernet_has_asks_for_one(arguments, tmp_path):
    found = settings_with(tmp_path, **arguments)
    assert found.has_supernet
    assert found == settings_with(tmp_path, **{"scorer": "supernet"} | arguments)


def test_every_setting_of_an_effort_says_how_to_search():
    assert {*DECIDED} <= SAYS_HOW
    assert not says_how({}, {})
    assert not says_how(dict.fromkeys(SAYS_HOW), {})


def test_a_run_on_a_supernet_goes_on_as_one(tmp_path):
    job = TinyNetwork, tiny_data()
    asked = {"budget": Budget(macs=0.5), "recipe": RECIPE, "num_choices": 4, "threads": 1, "run_dir": tmp_path / "run"}
    bcnet.train_supernet(*job, **asked)
    assert preview(*job, **asked).settings.has_supernet
    assert not preview(*job, **asked | {"run_dir": tmp_path / "other"}).settings.has_supernet


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"effort": "huge"}, "effort is one of small, medium, large; got 'huge'"),
        ({"effort": "small", "searcher": "greedy"}, "effort='small' decides how.*got searcher beside it"),
        ({"effort": "small", "scorer": "supernet", "random_epochs": 2}, "got random_epochs, scorer beside it"),
        ({"effort": "small", "supernet_epochs": 2}, "got supernet_epochs beside it"),
        ({"effort": "small", "changes": {"supernet.lr": 0.1}}, "got supernet.lr beside it"),
        ({"effort": "small", "tune_steps": 3}, "got tune_steps beside it"),
        ({"effort": "small", "population": 20, "strategy": "sandwich"}, "got population, strategy beside it"),
    ],
)
def test_what_contradicts_an_effort_is_refused(arguments, message, tmp_path):
    with pytest.raises(RecipeError, match=message):
        bcnet.search("resnet_digits", "digits", budget=Budget(macs=0.5), run_dir=tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()
