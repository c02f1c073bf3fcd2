"""Runs that share stages with others: what is shared is reused, and never done again."""

import json

import pytest
import torch
from tiny_job import RECIPE, Recorder, StoppedError, TinyNetwork, supernet_method, tiny_data, tiny_search
from tiny_job import tiny_supernet_search as on_supernet

import bcnet
from bcnet import Budget
from bcnet.errors import ModelError, RunError, WidthError
from bcnet.run.settings import make_settings
from bcnet.run.status import read_status
from bcnet.stages.plan import stages_of
from bcnet.stages.reuse import is_shared

THIRD = Budget(macs=0.35)


def comparable(folder):
    """What two runs of equal settings have in common, however they came to it."""
    result = json.loads((folder / "result.json").read_text())
    for key in ("sha256", "belongs_to", "seconds"):
        result.pop(key)
    weights = {name: (folder / f"{name}.safetensors").read_bytes() for name in ("supernet", "original", "final")}
    return result, weights


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "finished"
    on_supernet(folder)
    return folder


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "usual"
    tiny_search(folder)
    return folder


def test_the_parts_make_the_same_run_as_the_whole(finished, tmp_path):
    stages = []
    for until in ("prior", "widths", "network", None):
        recorder = Recorder()
        on_supernet(tmp_path, until=until, reporter=recorder)
        stages.append(recorder.stages)
    assert stages == [
        ["supernet", "prior"],
        ["evolution", "reliability"],
        ["evolution", "searched"],  # the search is replayed from its stored scores
        ["evolution", "original", "Uniform"],
    ]
    assert comparable(tmp_path) == comparable(finished)


def test_a_run_up_to_its_network_is_finished_in_part(tmp_path):
    tiny_search(tmp_path, until="network")
    assert not [*tmp_path.glob("uniform*")]
    assert read_status(tmp_path).state == "in part"


def test_another_budget_needs_no_other_supernet(finished, tmp_path):
    before = {path.name: path.read_bytes() for path in finished.iterdir() if path.is_file()}
    recorder = Recorder()
    found = on_supernet(tmp_path / "third", budget=THIRD, reuse=finished, until="widths", reporter=recorder)
    assert recorder.stages == ["prior", "evolution", "reliability"]
    assert found.space.cost(found.widths).macs <= 0.35 * found.space.reference.macs
    assert {path.name: path.read_bytes() for path in finished.iterdir() if path.is_file()} == before
    on_supernet(tmp_path / "third", budget=THIRD)
    on_supernet(tmp_path / "alone", budget=THIRD)
    assert comparable(tmp_path / "third") == comparable(tmp_path / "alone")


def test_other_training_takes_the_search_over(finished, tmp_path):
    recorder = Recorder()
    method = supernet_method(training=RECIPE)
    outcome = on_supernet(tmp_path, method=method, training={"epochs": 1}, reuse=[finished], reporter=recorder)
    assert recorder.stages == ["evolution", "original", "Uniform", "searched"]
    assert outcome.result.epochs == {"supernet": 2, "final": 1}
    assert (tmp_path / "prior.json").exists()


def test_an_interrupted_takeover_goes_on(finished, tmp_path):
    options = {"options": {"training_seed": 7}, "reuse": [finished]}
    with pytest.raises(StoppedError):
        on_supernet(tmp_path, reporter=Recorder(("original", 1)), **options)
    assert on_supernet(tmp_path, **options).result.networks["searched"].test["top1"] > 0


def test_given_widths_are_trained_without_a_search(tmp_path):
    recorder = Recorder()
    outcome = tiny_search(tmp_path, budget=None, method=bcnet.Given((5, 7)), reporter=recorder, report=True)
    assert recorder.stages == ["original", "Uniform", "searched"]
    assert outcome.widths == (5, 7)
    assert (outcome.network.first[0].out_channels, outcome.network.second[0].out_channels) == (5, 7)
    networks = outcome.result.networks
    assert networks["uniform"].macs <= networks["searched"].macs
    assert (outcome.found, outcome.result.search) == (None, None)
    page = (tmp_path / "report.html").read_text()
    assert "narrowed to given widths" in page
    assert not any(f'id="{part}"' in page for part in ("progress", "prior", "fairness"))
    assert read_status(tmp_path).state == "finished"


def test_what_a_search_returned_is_a_run_to_reuse_and_the_widths_of_another(tmp_path):
    first = tiny_search(tmp_path / "first", budget=None, method=bcnet.Given((5, 7)), start="original")
    recorder = Recorder()
    again = bcnet.Given(first)
    second = tiny_search(
        tmp_path / "second", budget=None, method=again, start="original", reuse=first, reporter=recorder
    )
    assert second.widths == (5, 7)
    assert "original" not in recorder.stages


@pytest.mark.parametrize(("given", "trained"), [((6, 6), ["searched"]), ((3, 4), ["Uniform", "searched"])])
def test_given_widths_reuse_an_original_and_a_uniform_network_of_the_same_widths(given, trained, usual, tmp_path):
    recorder = Recorder()
    names = [group["name"] for group in json.loads((usual / "result.json").read_text())["groups"]]
    method = bcnet.Given(dict(zip(names, given, strict=True)))
    outcome = tiny_search(tmp_path, budget=None, method=method, start="original", reuse=usual, reporter=recorder)
    assert outcome.widths == given
    assert recorder.stages == trained


def test_uniform_widths_that_another_budget_gives_too_are_not_trained_again(usual, tmp_path):
    theirs = bcnet.Run.open(usual).networks["uniform"]
    recorder = Recorder()
    budget = Budget(macs=theirs.cost.macs)
    again = tiny_search(tmp_path / "same", budget=budget, method=bcnet.Uniform(), reuse=[usual], reporter=recorder)
    assert recorder.stages == []
    assert again.widths == theirs.widths
    tiny_search(tmp_path / "alone", budget=budget, method=bcnet.Uniform())
    mine, alone = (
        bcnet.Run.open(tmp_path / name).network("uniform", TinyNetwork).state_dict() for name in ("same", "alone")
    )
    assert all(torch.equal(mine[key], alone[key]) for key in alone)


def test_uniform_widths_of_a_budget_with_other_measures_are_trained_again(usual, tmp_path):
    budget = Budget(macs=bcnet.Run.open(usual).networks["uniform"].cost.macs, memory=1.0)
    recorder = Recorder()
    tiny_search(tmp_path, budget=budget, method=bcnet.Uniform(), reuse=[usual], reporter=recorder)
    assert recorder.stages == ["Uniform"]


def test_a_run_stays_what_its_settings_say(usual):
    with pytest.raises(RunError, match=r"limits.macs is 0.5 there and 0.35 here; .*another --out"):
        tiny_search(usual, budget=THIRD)
    with pytest.raises(RunError, match=r"training.epochs is 2 there and 1 here"):
        tiny_search(usual, training={"epochs": 1})


MISTAKES = {
    "other data": ({"data": tiny_data(126)}, RunError, "the data of run .* has changed since"),
    "other model": ({"model": lambda: TinyNetwork(9)}, RunError, "the model of run .* has changed since"),
    "no run": ({"reuse": ["no/such/run"]}, RunError, "is not a run directory"),
    "widths": ({"method": bcnet.Given((1, 2, 3)), "budget": None}, WidthError, "got 3"),
    "words": ({"method": bcnet.Given("6,x"), "budget": None}, WidthError, "got '6,x'"),
    "published": ({"method": bcnet.Given("published:1"), "budget": None}, ModelError, "exist for"),
}


@pytest.mark.parametrize(("changes", "kind", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_leave_nothing_behind(usual, tmp_path, changes, kind, message):
    with pytest.raises(kind, match=message):
        tiny_search(tmp_path / "new", **{"reuse": [usual], "budget": THIRD} | changes)
    assert not (tmp_path / "new" / "original.safetensors").exists()


def test_a_damaged_stage_is_not_taken_over(finished, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for path in finished.iterdir():
        if path.is_file():
            (source / path.name).write_bytes(path.read_bytes())
    content = bytearray((source / "supernet.safetensors").read_bytes())
    content[-1] ^= 1
    (source / "supernet.safetensors").write_bytes(content)
    with pytest.raises(RunError, match="is damaged"):
        on_supernet(tmp_path / "new", budget=THIRD, reuse=source)


def shared(theirs, ours):
    both = {stage.name for stage in stages_of(theirs)}
    return " ".join(s.name for s in stages_of(ours) if s.name in both and is_shared(s, theirs, ours))


def settings_of(method, **changes):
    values = {"model": "m", "data": "d", "limits": {"macs": 0.5}, "training": RECIPE, "method": method}
    return make_settings(**values | changes)


METHOD = bcnet.BCNet(training=RECIPE, epochs=2)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "supernet prior evolution reliability finalists original Uniform searched examples"),
        ({"limits": {"macs": 0.3}}, "supernet original Uniform"),  # as far as settings tell
        ({"method": METHOD.model_copy(update={"generations": 3})}, "supernet prior original Uniform"),
        ({"method": METHOD.model_copy(update={"seed": 3})}, "supernet prior original Uniform"),
        ({"method": METHOD.model_copy(update={"keep_records": 3})}, "supernet original Uniform"),
        ({"method": METHOD.model_copy(update={"strategy": "bilateral"})}, "original Uniform"),
        ({"training": RECIPE.with_changes({"lr": 0.1})}, "supernet prior evolution reliability finalists"),
        ({"options": {"training_seed": 3}}, "supernet prior evolution reliability finalists"),
        ({"options": {"score_batch_size": 3}}, "supernet prior original Uniform"),
        ({"options": {"validation_fraction": 0.2}}, "original Uniform"),
        ({"method": bcnet.Balanced()}, "original Uniform"),
        ({"seed": 3}, ""),
        ({"model": "other"}, ""),
        ({"space": {"num_choices": 5}}, ""),
    ],
)
def test_a_stage_is_shared_where_what_it_depends_on_is(changes, expected):
    found = shared(settings_of(METHOD), settings_of(**{"method": METHOD} | changes))
    assert found.replace(" examples", "") == expected.replace(" examples", "") or "method" in changes
    assert set(expected.split()) - {"examples"} == set(found.split()) - {"examples"}


SHORT = bcnet.Trainings(networks=8, epochs=1, finalists=1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "trials reliability finalists original Uniform searched examples"),
        ({"method": SHORT.model_copy(update={"networks": 9})}, "original Uniform"),
        ({"training": RECIPE.with_changes({"lr": 0.1})}, ""),
        ({"task": "regression"}, ""),
    ],
)
def test_trainings_are_shared_where_what_they_depend_on_is(changes, expected):
    found = shared(settings_of(SHORT), settings_of(**{"method": SHORT} | changes))
    assert set(expected.split()) - {"examples"} == set(found.split()) - {"examples"}


@pytest.mark.parametrize(("patience", "expected"), [(None, "original Uniform"), (2, "")])
def test_networks_that_held_out_images_end_are_shared_where_the_same_are_held_out(patience, expected):
    training = RECIPE.with_changes({"early_stopping": patience})
    theirs, ours = (
        settings_of(bcnet.Uniform(), training=training, options={"validation_fraction": share}) for share in (0.1, 0.2)
    )
    assert set(shared(theirs, ours).split()) - {"searched", "examples"} == set(expected.split())


def test_one_network_alone_is_trained_as_it_is_beside_others(tmp_path):
    seen = Recorder()
    options = {"budget": None, "method": bcnet.Given((3, 5)), "seed": 2}
    alone = tiny_search(tmp_path / "alone", until="network", reporter=seen, **options)
    assert seen.stages == ["searched"]
    both = tiny_search(tmp_path / "both", **options)
    assert alone.test.figures["top1"] == pytest.approx(both.result.networks["searched"].test["top1"])
    for mine, theirs in zip(alone.network.parameters(), both.network.parameters(), strict=True):
        assert mine.equal(theirs)


def test_one_network_alone_learns_from_the_original_where_the_recipe_says(tmp_path):
    options = {"budget": None, "training": {"distillation": {}}, "until": "network"}
    first, second = Recorder(), Recorder()
    tiny_search(tmp_path / "a", method=bcnet.Given((3, 5)), reporter=first, **options)
    tiny_search(tmp_path / "b", method=bcnet.Given((4, 5)), reporter=second, reuse=[tmp_path / "a"], **options)
    assert first.stages == ["original", "searched"]
    assert second.stages == ["searched"]


def test_widths_may_be_narrower_than_any_choice_of_a_search(tmp_path):
    options = {"budget": None, "method": bcnet.Given((1, 2)), "space": {"num_choices": 2}}  # from half of each group on
    both = tiny_search(tmp_path, **options)
    assert both.widths == (1, 2)
    assert both.result.networks["uniform"].macs > both.result.networks["searched"].macs
