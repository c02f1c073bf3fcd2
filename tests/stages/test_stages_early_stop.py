"""A run that stops candidates early: what it stores and tells, and how it goes on; and what it refuses."""

import pytest
from tiny_job import RECIPE, Recorder, StoppedError, TinyNetwork, tiny_data, tiny_search, traces

from bcnet import evolve, train_supernet
from bcnet.errors import RecipeError
from bcnet.machine import defaults as machine
from bcnet.report.evidence import read_evidence
from bcnet.run.directory import read_settings
from bcnet.run.early_stop import candidates_text, race_of
from bcnet.run.settings import make_settings
from bcnet.searchers import Race

RACED = {
    "population": 8,
    "generations": 4,
    "early_stop": "on",
    "score_batch_size": 10,
    "validation_fraction": 0.4,
    "rescored": 3,
    "num_choices": 12,
}


def raced(folder, **changes):
    return tiny_search(folder, **RACED, data=tiny_data(270), **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return raced(tmp_path_factory.mktemp("runs") / "raced")


def test_candidates_are_stopped_and_counted(finished):
    found, document = finished.found, finished.result["search"]
    assert 0 < found.stopped < len(found.evaluations) == document["evaluations"]
    assert document["stopped"] == found.stopped
    assert document["effort"] == found.effort < 1
    whole = {c.widths for c in found.evaluations if c.complete}
    assert {tuple(r["widths"]) for r in document["rescored"]} <= whole
    assert finished.widths in whole
    assert {len(c.batches) for c in found.evaluations if c.complete} == {9}
    assert f"{found.stopped:,} of them stopped early" in found._repr_html_()


def test_the_report_tells_estimates_from_scores(finished):
    evidence = read_evidence(finished.run_dir)
    text = candidates_text(evidence.evaluated)
    assert text == candidates_text(finished.result["search"])
    page = (finished.run_dir / "report.html").read_text()
    assert f"Pale dots were stopped early and are estimates ({text})" in page
    stopped = next(c for c in evidence.evaluations if not c.complete)
    assert f"estimated on {len(stopped.batches)} batches" in page


def test_a_race_stopped_within_a_generation_ends_like_one_that_never_stopped(finished, tmp_path):
    with pytest.raises(StoppedError):
        raced(tmp_path, reporter=Recorder(("evolution", 21)))
    raced(tmp_path)
    assert traces(tmp_path) == traces(finished.run_dir)


def settings(**values):
    return make_settings(model="m", data="d", limits={"macs": 0.5}, supernet=RECIPE, final=RECIPE, **values)


def test_auto_races_where_it_can():
    assert race_of(settings(early_stop="off"), 40) is None
    assert race_of(settings(early_stop="auto"), 7) is None
    assert race_of(settings(early_stop="auto", own_score="mine"), 40) is None
    assert race_of(settings(early_stop="auto", widths=(1, 2)), 40) is None
    assert race_of(settings(early_stop="auto", early_stop_level=0.3), 8) == Race(level=0.3)
    assert race_of(settings(early_stop="on", score="loss"), 8) == Race()


def test_a_race_that_is_asked_for_has_smaller_batches_unless_they_are_given():
    assert settings(early_stop="on").resolved().score_batch_size == 128
    assert settings(early_stop="on", score_batch_size=500).resolved().score_batch_size == 500
    assert settings(early_stop="auto").resolved().score_batch_size > 128


def test_another_search_of_a_run_can_be_raced(tmp_path, monkeypatch):
    run, raced_run = tmp_path / "run", tmp_path / "raced"
    data = tiny_data(480)
    train_supernet(TinyNetwork, data, run_dir=run, recipe=RECIPE, population=4, generations=2, parents=2, threads=1)
    monkeypatch.setattr(machine, "_RACED_BATCH", 4)
    monkeypatch.setattr(machine, "_LEAST_SCORE_BATCH", 4)
    found = evolve(run, run_dir=raced_run, early_stop="on", model=TinyNetwork, data=data).found
    assert max(len(candidate.batches) for candidate in found.evaluations) > 4
    assert read_settings(raced_run).score_batch_size == 4
    again = evolve(raced_run, early_stop="on", model=TinyNetwork, data=data).found
    assert again == found


def test_what_cannot_be_raced_is_refused_before_anything_is_trained(tmp_path):
    with pytest.raises(RecipeError, match=r"at least 8 batches of validation images; got 1 of .*--score-batch-size"):
        tiny_search(tmp_path / "few", early_stop="on")
    with pytest.raises(RecipeError, match=r"early_stop=on is for the scores accuracy and loss; got mine, a score of"):
        tiny_search(tmp_path / "own", early_stop="on", score_of_widths=lambda widths: 1.0, tags={"score": "mine"})
    with pytest.raises(RecipeError, match="early_stop"):
        tiny_search(tmp_path / "word", early_stop="maybe")
    with pytest.raises(RecipeError, match="early_stop_level"):
        tiny_search(tmp_path / "level", early_stop_level=0.7)
    assert list(tmp_path.iterdir()) == []
