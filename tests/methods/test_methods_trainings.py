"""What a search by short trainings spends, said in trainings of the original."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_job import TinyNetwork, tiny_data

import bcnet
from bcnet.api import preview
from bcnet.errors import BudgetError, RecipeError
from bcnet.methods.base import Request, parse_method
from bcnet.methods.trainings import EFFORTS, FEWEST
from bcnet.space import Budget
from bcnet.testing.searchers import toy_space
from bcnet.train import Recipe

SPACE = toy_space(4)
EFFORT = st.sampled_from(sorted(EFFORTS))


def completed(method, epochs, *, ratio=0.5, seen=0.8, start="original", macs=None):
    recipe = Recipe(lr=0.1, batch_size=8, epochs=epochs, distillation={"weight": 0.5})
    return method.complete(Request(recipe, start, seen, Budget(macs=macs or ratio), lambda: SPACE))


@given(
    EFFORT, st.integers(1, 400), st.floats(0.05, 1.0), st.floats(0.3, 0.98), st.sampled_from(["original", "scratch"])
)
def test_networks_and_epochs_cost_the_trainings_asked_for(name, epochs, ratio, seen, start):
    found = completed(bcnet.Trainings(effort=name), epochs, ratio=ratio, seen=seen, start=start)
    uniform = SPACE.cost(SPACE.uniform(macs=ratio)).macs / SPACE.reference.macs
    epoch = seen * math.sqrt(uniform) / epochs
    assert 1 <= found.epochs <= epochs
    assert found.finalist_epochs in (None, epochs)
    assert found.finalist_epochs is None or found.epochs < epochs
    best = (found.finalist_epochs or 0) * found.finalists * epoch
    spent = found.networks * found.epochs * epoch + best
    assert found.networks == FEWEST or spent <= EFFORTS[name].trainings < spent + found.epochs * epoch


def test_more_effort_trains_for_more_epochs():
    found = [completed(bcnet.Trainings(effort=name), 100, start="scratch") for name in EFFORTS]
    assert [*EFFORTS] == ["small", "medium", "large"]
    assert [(f.epochs, f.finalist_epochs) for f in found] == [(10, None), (20, 100), (30, 100)]
    epochs = [f.networks * f.epochs + f.finalists * (f.finalist_epochs or 0) for f in found]
    assert epochs == sorted(set(epochs))


def test_candidates_from_trained_weights_take_fewer_epochs_and_are_more():
    for name in EFFORTS:
        scratch, tuned = (completed(bcnet.Trainings(effort=name), 100, start=s) for s in ("scratch", "original"))
        assert tuned.epochs == 5 < scratch.epochs
        assert tuned.networks > scratch.networks
        assert (tuned.finalists, tuned.finalist_epochs) == (1, None), "they are told apart without whole trainings"


def test_fields_that_are_given_stay():
    found = completed(bcnet.Trainings(networks=12, epochs=3, finalists=2, finalist_epochs=7), 20)
    assert (found.networks, found.epochs, found.finalists, found.finalist_epochs) == (12, 3, 2, 7)
    assert completed(found, 20) == found, "a method that is complete stays as it is"


def test_epochs_may_be_a_part_of_one():
    recipe = Recipe(lr=0.1, batch_size=8, epochs=10)
    quarter, one = (completed(bcnet.Trainings(epochs=epochs, effort="small"), 10) for epochs in (0.25, 1))
    assert 0 <= quarter.networks - 4 * one.networks < 4
    assert (quarter.length, quarter.trial(recipe).epochs) == (0.25, 1)
    whole = bcnet.Trainings(epochs=2.0)
    assert (whole.epochs, type(whole.epochs)) == (2, int)
    assert whole == bcnet.Trainings(epochs=2)
    assert parse_method("trainings:epochs=0.25").epochs == 0.25


@pytest.mark.parametrize("epochs", [0, -1, 1.5, 0.0, float("nan"), "one", True, 2**31])
def test_other_numbers_of_epochs_are_refused(epochs):
    with pytest.raises(
        RecipeError, match=r"'epochs' must be an int of at least 1, or a part of one epoch, as 0\.25; got"
    ):
        bcnet.Trainings(epochs=epochs)


def test_a_training_that_goes_on_has_whole_epochs():
    with pytest.raises(RecipeError, match=r"'continued' goes on after whole epochs; got 0.5"):
        bcnet.Random(epochs=0.5, continued=True)


@pytest.mark.parametrize("longer", [3, 21])
def test_finalists_are_trained_for_longer_than_candidates(longer):
    with pytest.raises(
        RecipeError, match=rf"more than the 3 epochs of all candidates, and at most the 20 .* got {longer}"
    ):
        completed(bcnet.Trainings(epochs=3, finalist_epochs=longer), 20)


def test_a_budget_below_the_narrowest_network_is_told():
    with pytest.raises(BudgetError, match="must admit the narrowest uniform network"):
        completed(bcnet.Trainings(effort="small"), 10, macs=1)


@pytest.mark.parametrize("reach", [0.5, 1.0, -1])
def test_a_reach_is_a_factor(reach):
    with pytest.raises(RecipeError, match=f"'reach' must be .*; got {reach}"):
        bcnet.Trainings(reach=reach)


def test_random_networks_are_trained_for_fifty_epochs_as_in_the_paper():
    recipe = Recipe(lr=0.1, batch_size=8, epochs=120, distillation={"weight": 0.5})
    long = completed(bcnet.Random(5), 120)
    assert (long.networks, long.epochs) == (5, 50)
    assert long.trial(recipe).distillation is None
    assert long.trial(recipe).lr == recipe.lr
    assert completed(bcnet.Random(), 30).epochs == 30
    assert completed(bcnet.Random(epochs=7), 120).epochs == 7


def settings_of(folder, model=TinyNetwork, **arguments):
    return preview(model, tiny_data(), Budget(macs=0.5), folder, **arguments).settings


def test_networks_start_from_the_original_unless_told_otherwise(tmp_path):
    weights = TinyNetwork().state_dict()
    for changes, start in (
        ({}, "original"),
        ({"pretrained": weights}, "pretrained"),
        ({"start": "scratch"}, "scratch"),
        ({"space": {"widen": 1.5}}, "scratch"),
        ({"method": bcnet.BCNet()}, "scratch"),
        ({"method": bcnet.Balanced()}, "original"),
    ):
        assert settings_of(tmp_path, **changes).start == start


def test_a_search_without_a_method_is_one_of_medium_trainings_by_loss(tmp_path):
    found = settings_of(tmp_path)
    assert found == settings_of(tmp_path, method=bcnet.Trainings(effort="medium"))
    assert found == settings_of(tmp_path, method="trainings:effort=medium")
    assert (found.method.searcher, found.metric) == ("model", "loss")
    assert found.method.networks >= FEWEST
    assert settings_of(tmp_path, method=bcnet.Trainings(score="accuracy")).metric == "accuracy"
