"""How far scores can be believed: of known truth, of a search at chance, and of one that learns."""

import numpy as np
import pytest
import torch
from tiny_job import RECIPE, Recorder, StoppedError, TinyNetwork, supernet_method, tiny_data, tiny_search

import bcnet
from bcnet.costs import Cost
from bcnet.data import Augmentation, DataSet
from bcnet.models import create
from bcnet.run.directory import read_result
from bcnet.run.reliability import Reliability
from bcnet.searchers import Candidate
from bcnet.searchers.score_model import ScoreModel
from bcnet.space import WidthSpace
from bcnet.space.problem import Problem
from bcnet.stages.reliability import chance_of, r2_left_out, reliability_in_parts, reliability_of, with_ties


def scores(signal, noise, candidates=400, images=200, seed=0):
    """Scores of single images, whose means vary by `signal` with the widths and by `noise` without."""
    rng = np.random.default_rng(seed)
    worth = rng.normal(0, signal, (candidates, 1, 1))
    return worth + rng.normal(0, noise * np.sqrt(2 * images), (candidates, 2, images))


@pytest.mark.parametrize(("signal", "noise"), [(1.0, 0.1), (1.0, 1.0), (0.3, 1.0), (0.0, 1.0)])
def test_the_share_that_widths_explain_is_found(signal, noise):
    found = reliability_of(scores(signal, noise))
    assert found.reliability == pytest.approx(signal**2 / (signal**2 + noise**2), abs=0.1)
    assert found.spread == pytest.approx(signal, abs=0.1 + 0.3 * noise)
    assert found.noise == pytest.approx(noise, rel=0.15)
    of_a_side = signal**2 / (signal**2 + 2 * noise**2)
    assert found.sides == pytest.approx(of_a_side, abs=0.12)
    believed = min(found.reliability, 2 * found.sides / (1 + found.sides))
    assert found.verdict == ("much" if believed >= 0.6 else "little" if believed >= 0.3 else "nothing")


def test_scores_that_repeat_themselves_but_differ_from_side_to_side_say_nothing():
    rng = np.random.default_rng(0)
    channels = rng.normal(0, 1, (64, 2, 1))  # what the channels are worth, whatever the width
    found = reliability_of(channels + rng.normal(0, 0.1, (64, 2, 200)))
    assert found.reliability > 0.95
    assert found.verdict == "nothing"
    assert "The scores say nothing about widths here" in str(found)


def test_one_side_has_no_other_to_agree_with():
    assert reliability_of(scores(1.0, 1.0)[:, :1]).sides is None


def test_scores_that_are_all_the_same_say_nothing():
    found = reliability_of(np.full((8, 2, 30), 100 / 3), np.arange(30) % 3)
    assert (found.reliability, found.sides, found.verdict) == (0.0, 0.0, "nothing")
    assert (found.chance, found.beats_chance) == (pytest.approx(100 / 3), False)
    assert "no candidate is surely better than the most frequent class, 33.33 %" in str(found)
    assert "take widths that need no search (--method balanced)" in str(found)


def test_the_best_of_many_is_not_better_than_chance_by_luck():
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    at_chance = [reliability_of(100.0 * (rng.random((32, 2, 90)) < 1 / 3), labels) for _ in range(40)]
    assert np.mean([found.beats_chance for found in at_chance]) < 0.1
    learnt = reliability_of(100.0 * (rng.random((32, 2, 90)) < 0.7), labels)
    assert learnt.beats_chance
    assert learnt.chance == pytest.approx(100 / 3)


def believed(share, images, **values):
    return Reliability(candidates=32, images=images, reliability=share, spread=1.0, noise=1.0, **values)


@pytest.mark.parametrize(("share", "words"), [(0.1, "say nothing"), (0.5, "say little"), (0.9, "are repeatable")])
def test_it_is_said_in_words(share, words):
    text = str(believed(share, 500, sides=0.5))
    assert words in text
    assert f"widths explain {share:.0%} of the scores' variance, LEFT and RIGHT correlate at 0.50" in text


@pytest.mark.parametrize(("signal", "noise"), [(1.0, 0.1), (1.0, 1.0), (0.0, 1.0)])
def test_networks_are_judged_by_parts_of_the_images(signal, noise):
    rng = np.random.default_rng(0)
    parts = rng.normal(0, signal, (400, 1)) + rng.normal(0, noise * np.sqrt(8), (400, 8))
    found = reliability_in_parts(parts, 800)
    assert found.reliability == pytest.approx(signal**2 / (signal**2 + noise**2), abs=0.1)
    assert (found.candidates, found.images, found.sides, found.chance) == (400, 800, None, None)


def test_a_model_that_explains_nothing_takes_the_word_from_networks_that_only_repeat_themselves():
    rng = np.random.default_rng(0)
    parts = rng.normal(0, 1, (64, 1)) + rng.normal(0, 0.1, (64, 8))
    lucky, lawful = (reliability_in_parts(parts, 800, r2=r2) for r2 in (0.1, 0.8))
    assert lucky.reliability == lawful.reliability > 0.9
    assert (lucky.verdict, lawful.verdict) == ("nothing", "much")
    assert "and a model of the widths 10% of it on candidates left out" in str(lucky)
    assert "train candidates for longer (a larger --epochs or --effort)" in str(lucky)
    assert "over 64 candidates and 800 held-out images" in str(lawful)
    assert "This does not show that short trainings rank widths as full trainings do" in str(lawful)
    assert "that shared weights rank" in str(believed(0.9, 500, sides=0.9))


def drawn(law, noise, seed=0):
    """Scores of 60 random candidates of `resnet_digits` by a law of their log widths, `(widths, scores)`."""
    space = WidthSpace.trace(create("resnet_digits", 10).build(), torch.zeros(2, 1, 8, 8))
    rng = np.random.default_rng(seed)
    widths = Problem.of(space, bcnet.Budget(macs=0.5)).fill(60, (), rng)
    found = law(np.log(np.array(widths)))
    return space, widths, list(found / found.std() + noise * rng.normal(size=60))


def test_scores_that_are_not_additive_are_predicted_all_the_same():
    space, widths, scores = drawn(lambda logs: -np.square(logs[:, 0] - logs[:, 0].mean()), 0.1)
    assert r2_left_out(space, widths, scores) > ScoreModel.fit(space, widths, scores, trust=1.0).r2 + 0.2


def test_additive_scores_are_predicted_as_well_as_by_the_search():
    space, widths, scores = drawn(lambda logs: logs.sum(axis=1), 0.3)
    assert r2_left_out(space, widths, scores) >= ScoreModel.fit(space, widths, scores, trust=1.0).r2 > 0.7


def test_scores_of_noise_alone_or_of_nothing_are_not_predicted():
    found = []
    for seed in range(8):
        space, widths, scores = drawn(lambda logs: logs[:, 0], 0.0, seed)
        found.append(r2_left_out(space, widths, list(np.random.default_rng(seed).permutation(scores))))
    assert np.mean(found) < 0.1
    assert r2_left_out(space, widths, [1.0] * 60) == 0.0


def candidates(scores, params):
    return [Candidate((8, n), s, Cost(100, p)) for n, (s, p) in enumerate(zip(scores, params, strict=True))]


def test_candidates_that_a_fit_cannot_tell_from_the_best_are_tied_with_it():
    sure = believed(0.9, 800, r2=0.75, of_networks=True)
    scores = [1.0, 0.4, -0.6, -1.0, 0.9]  # half of their standard deviation is 0.4
    assert np.std(scores) / 2 == pytest.approx(0.4, abs=0.01)
    tied = with_ties(sure, candidates(scores, [100, 10, 10, 10, 70]), 0.75)
    assert (tied.tied, tied.smallest, tied.smallest_params) == (2, (8, 4), 0.7)
    words = "2 candidates are tied with the best within this precision; the smallest of them has 30% fewer parameters"
    assert words in str(tied)
    assert "(--method given:values=8,4)" in str(tied)
    worse = with_ties(sure, candidates(scores, [100, 10, 10, 10, 70]), 0.0)
    assert (worse.tied, worse.smallest) == (3, (8, 1))
    largest = with_ties(sure, candidates(scores, [60, 10, 10, 10, 70]), 0.75)
    assert (largest.tied, largest.smallest, largest.smallest_params) == (2, (8, 0), 1.0)
    hardly = with_ties(sure, candidates(scores, [1000, 10, 10, 10, 995]), 0.75)
    assert hardly.smallest == (8, 4)
    for found in (largest, hardly):
        assert found.verdict == "much"
        assert "tied with the best" not in str(found)


def test_where_scores_say_nothing_no_other_widths_are_proposed():
    unsure = believed(0.9, 800, r2=0.1, of_networks=True)
    tied = with_ties(unsure, candidates([1.0, 0.9, 0.8, 0.7, 0.6], [100, 90, 80, 70, 60]), 0.1)
    assert tied.verdict == "nothing"
    assert tied.tied == 2
    assert "tied with the best" not in str(tied)


def test_chance_is_what_the_frequencies_of_the_classes_score():
    labels = np.array([0, 0, 1, 2])
    assert chance_of(labels, "accuracy") == 50.0
    guess = torch.log(torch.tensor([0.5, 0.25, 0.25])).expand(4, 3)
    assert chance_of(labels, "loss") == pytest.approx(-float(torch.nn.functional.nll_loss(guess, torch.tensor(labels))))


@pytest.mark.parametrize(("metric", "level"), [("loss", -np.log(3)), ("accuracy", 100 / 3)])
def test_the_best_of_many_networks_is_not_better_than_chance_by_luck(metric, level):
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3

    def beats(gain):
        return reliability_in_parts(level + gain + rng.normal(0, 1, (32, 8)), 90, metric=metric, labels=labels)

    assert np.mean([beats(0.0).beats_chance for _ in range(200)]) < 0.1
    assert beats(20.0).beats_chance
    assert "no candidate is surely better than" in str(beats(-20.0))


def nothing_to_learn():
    pixels = torch.randint(256, (150, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    labels = torch.arange(150) % 3
    return DataSet.from_tensors((pixels[30:], labels[30:]), (pixels[:30], labels[:30]), augmentation=Augmentation())


def test_a_search_by_trainings_that_learns_nothing_says_so_first(tmp_path):
    budget = bcnet.Budget(macs=0.5)
    bcnet.search(
        TinyNetwork, nothing_to_learn(), budget=budget, run_dir=tmp_path, training=RECIPE, options={"threads": 1}
    )
    found = read_result(tmp_path).reliability
    assert (found.verdict, found.beats_chance) == ("nothing", False)
    assert found.chance == pytest.approx(-np.log(3), abs=0.01)
    assert 0 <= found.r2 <= 1
    assert 1 <= found.tied <= found.candidates
    page = (tmp_path / "report.html").read_text()
    assert "no candidate is surely better than knowing how frequent each class is" in page
    assert page.index("The scores say nothing about widths here") < page.index("Score against multiply-adds")


def test_a_search_that_learns_nothing_says_so_first(tmp_path):
    tiny_search(tmp_path, data=nothing_to_learn(), method=supernet_method(), space={"num_choices": 8}, report=True)
    found = read_result(tmp_path).reliability
    assert found.verdict == "nothing"
    assert found.beats_chance is False
    page = (tmp_path / "report.html").read_text()
    assert "The scores say nothing about widths here" in page
    assert page.index("The scores say nothing about widths here") < page.index("Score against multiply-adds")


@pytest.mark.parametrize("how", [{"method": supernet_method()}, {}], ids=["supernet", "trainings"])
def test_it_is_measured_once_and_the_same_after_a_kill(how, tmp_path):
    told = []
    at = ("original", 2) if how else ("trials", 3)

    class Notes(Recorder):
        def note(self, text):
            told.append(text)

    tiny_search(tmp_path / "whole", data=tiny_data(), reporter=Notes(), **how)
    assert sum(text.startswith("Trust in the search: ") for text in told) == 1
    with pytest.raises(StoppedError):
        tiny_search(tmp_path / "killed", reporter=Recorder(at), **how)
    again = Recorder()
    tiny_search(tmp_path / "killed", reporter=again, **how)
    assert "reliability" not in again.stages
    whole, killed = (read_result(tmp_path / name).reliability for name in ("whole", "killed"))
    assert whole == killed
    assert whole is not None


def test_a_baseline_has_no_scores_to_believe(tmp_path):
    budget = bcnet.Budget(macs=0.5)
    bcnet.search(TinyNetwork, tiny_data(), budget=budget, run_dir=tmp_path, training=RECIPE, method=bcnet.Uniform())
    assert read_result(tmp_path).reliability is None
