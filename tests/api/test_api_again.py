"""Single stages of a run, again with other settings: what is shared is reused, and never done again."""

import json

import pytest
import torch
from tiny_job import RECIPE, SMALL, Recorder, StoppedError, TinyNetwork, tiny_data, tiny_search

import bcnet
from bcnet import Budget
from bcnet.errors import BCNetError, ModelError, RecipeError, RunError, WidthError
from bcnet.run.settings import make_settings
from bcnet.stages.reuse import shared_stages

OBJECTS = {"model": TinyNetwork, "data": tiny_data()}
HALF, THIRD = Budget(macs=0.5), Budget(macs=0.35)


def train(folder, **changes):
    options = {"run_dir": folder, "recipe": RECIPE} | SMALL | changes
    return bcnet.train_supernet(TinyNetwork, tiny_data(), **options)


def comparable(folder):
    """What two runs of equal settings have in common, however they came to it."""
    result = json.loads((folder / "result.json").read_text())
    for key in ("sha256", "belongs_to", "seconds"):
        result.pop(key)
    weights = {name: (folder / f"{name}.safetensors").read_bytes() for name in ("supernet", "original", "final")}
    return result, weights


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "trained"
    outcome = train(folder)
    assert outcome.run_dir == folder
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "finished"
    tiny_search(folder)
    return folder


def test_the_parts_make_the_same_run_as_the_whole(finished, tmp_path):
    stages = [Recorder(), Recorder(), Recorder()]
    train(tmp_path / "run", budget=HALF, reporter=stages[0])
    found = bcnet.evolve(tmp_path / "run", **OBJECTS, reporter=stages[1])
    outcome = bcnet.retrain(tmp_path / "run", **OBJECTS, reporter=stages[2])
    assert [s.stages for s in stages] == [
        ["supernet", "prior"],
        ["evolution", "reliability"],
        ["evolution", "original", "Uniform", "searched"],  # the search is replayed from its stored scores
    ]
    assert found.widths == outcome.widths
    assert comparable(tmp_path / "run") == comparable(finished)


def test_another_budget_needs_no_other_supernet(trained, tmp_path):
    before = {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()}
    recorder = Recorder()
    found = bcnet.evolve(trained, budget=THIRD, run_dir=tmp_path / "third", **OBJECTS, reporter=recorder)
    assert recorder.stages == ["prior", "evolution", "reliability"]
    assert found.space.cost(found.widths).macs <= 0.35 * found.space.reference.macs
    assert {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()} == before
    bcnet.retrain(tmp_path / "third", **OBJECTS)
    tiny_search(tmp_path / "alone", budget=THIRD)
    assert comparable(tmp_path / "third") == comparable(tmp_path / "alone")


def test_another_search_takes_the_prior_over_as_well(trained, tmp_path):
    recorder = Recorder()
    found = bcnet.evolve(trained, seed=5, generations=3, run_dir=tmp_path / "more", **OBJECTS, reporter=recorder)
    assert recorder.stages == ["evolution", "reliability"]
    assert found.found.seed == 5


def test_other_final_training_takes_the_search_over(finished, tmp_path):
    recorder = Recorder()
    outcome = bcnet.retrain(finished, changes={"epochs": 1}, run_dir=tmp_path / "short", **OBJECTS, reporter=recorder)
    assert recorder.stages == ["evolution", "original", "Uniform", "searched"]
    assert outcome.result["epochs"] == {"supernet": 2, "final": 1}
    assert outcome.widths == bcnet.evolve(finished, **OBJECTS).widths
    assert (tmp_path / "short" / "prior.json").exists()


def test_an_interrupted_takeover_goes_on(finished, tmp_path):
    for stop in (("original", 1), None):
        options = {"seed": 7, "run_dir": tmp_path / "again", "reporter": Recorder(stop), **OBJECTS}
        if stop is None:
            assert bcnet.retrain(finished, **options).result["networks"]["searched"]["test"]["top1"] > 0
        else:
            with pytest.raises(StoppedError):
                bcnet.retrain(finished, **options)


def test_given_widths_are_trained_without_supernet_or_search(tmp_path):
    recorder = Recorder()
    options = {"recipe": RECIPE, "threads": 1, "num_choices": 4, "reporter": recorder} | OBJECTS
    outcome = bcnet.retrain(widths=(5, 7), run_dir=tmp_path, **options)
    assert recorder.stages == ["original", "Uniform", "searched"]
    assert outcome.widths == (5, 7)
    assert (outcome.network.first[0].out_channels, outcome.network.second[0].out_channels) == (5, 7)
    networks = outcome.result["networks"]
    assert networks["uniform"]["macs"] <= networks["searched"]["macs"]
    assert (outcome.found, outcome.result["search"]) == (None, None)
    assert not (tmp_path / "supernet.safetensors").exists()
    page = (tmp_path / "report.html").read_text()
    assert "narrowed to given widths" in page
    assert not any(f'id="{part}"' in page for part in ("progress", "prior", "fairness"))
    assert bcnet.read_status(tmp_path).state == "finished"
    assert [stage.record.name for stage in bcnet.read_status(tmp_path).stages] == ["original", "Uniform", "searched"]


@pytest.mark.parametrize(("given", "trained"), [((6, 6), ["searched"]), ((3, 4), ["Uniform", "searched"])])
def test_given_widths_of_a_run_reuse_its_original_and_its_uniform_network_of_the_same_widths(
    given, trained, finished, tmp_path
):
    recorder = Recorder()
    names = [group["name"] for group in json.loads((finished / "result.json").read_text())["groups"]]
    widths = dict(zip(names, given, strict=True))
    outcome = bcnet.retrain(finished, widths=widths, run_dir=tmp_path / "given", reporter=recorder, **OBJECTS)
    assert outcome.widths == given
    assert recorder.stages == trained


def test_uniform_widths_that_another_budget_gives_too_are_not_trained_again(finished, tmp_path):
    theirs = bcnet.Run.open(finished).networks["uniform"]
    recorder = Recorder()
    budget = Budget(macs=theirs.cost.macs)
    again = bcnet.baseline(
        "uniform", **OBJECTS, budget=budget, run_dir=tmp_path / "same", take_from=[finished], reporter=recorder,
        recipe=RECIPE, threads=1, num_choices=4, final_from="scratch",
    )  # fmt: skip
    assert recorder.stages == []
    assert again.widths == theirs.widths
    tiny_search(tmp_path / "alone", budget=budget)
    mine, alone = (
        bcnet.Run.open(tmp_path / name).network("uniform", TinyNetwork).state_dict() for name in ("same", "alone")
    )
    assert all(torch.equal(mine[key], alone[key]) for key in alone)


def test_uniform_widths_of_a_budget_with_other_measures_are_trained_again(finished, tmp_path):
    theirs = bcnet.Run.open(finished).networks["uniform"]
    recorder = Recorder()
    budget = Budget(macs=theirs.cost.macs, memory=1.0)
    bcnet.baseline(
        "uniform", **OBJECTS, budget=budget, run_dir=tmp_path / "same", take_from=[finished], reporter=recorder,
        recipe=RECIPE, threads=1, num_choices=4, final_from="scratch",
    )  # fmt: skip
    assert recorder.stages == ["Uniform"]


FOUND_OTHERWISE = {
    "uniform": {"baseline": "uniform"},
    "random": {"baseline": "random", "random_networks": 2, "random_epochs": 1},
    "tuned": {"tune_steps": 1, "finalist_steps": 2},
}


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[pytest.mark.slow] if how == "tuned" else []) for how in FOUND_OTHERWISE]
)
def test_given_widths_are_trained_however_the_run_found_its_own(how, tmp_path):
    tiny_search(tmp_path / how, **FOUND_OTHERWISE[how])
    recorder = Recorder()
    outcome = bcnet.retrain(tmp_path / how, widths=(3, 9), run_dir=tmp_path / "given", reporter=recorder, **OBJECTS)
    assert outcome.widths == (3, 9)
    assert outcome.result["networks"]["searched"]["widths"] == [3, 9]
    assert (outcome.network.first[0].out_channels, outcome.network.second[0].out_channels) == (3, 9)
    assert recorder.stages == ["Uniform", "searched"]


def test_a_run_stays_what_its_settings_say(finished):
    with pytest.raises(RunError, match=r"is one of limits.macs 0.5 and stays so; 0.35 makes another run.*--out"):
        bcnet.evolve(finished, budget=THIRD, **OBJECTS)
    with pytest.raises(RunError, match=r"is one of final.epochs 2 and stays so; 1 makes another run"):
        bcnet.retrain(finished, changes={"epochs": 1}, **OBJECTS)


OTHER = OBJECTS | {"model": lambda: TinyNetwork(9)}
MISTAKES = {
    "no model": (lambda run, new: bcnet.evolve(run), RunError, "only your code can make: give model="),
    "no data": (lambda run, new: bcnet.evolve(run, model=TinyNetwork), RunError, "can make: give data="),
    "other data": (
        lambda run, new: bcnet.evolve(run, model=TinyNetwork, data=tiny_data(126)),
        RunError,
        r"is of the data 'stripes \w+'; got 'stripes \w+'",
    ),
    "other model": (
        lambda run, new: bcnet.evolve(run, run_dir=new, budget=THIRD, **OTHER),
        RunError,
        "the model of run .* has changed since",
    ),
    "no run": (lambda run, new: bcnet.evolve(new, **OBJECTS), RunError, "is no run directory"),
    "budget": (lambda run, new: bcnet.evolve(run, budget=0.3, run_dir=new, **OBJECTS), BCNetError, r"write Budget\("),
    "key": (lambda run, new: bcnet.evolve(run, speed=3, run_dir=new, **OBJECTS), BCNetError, "unknown key 'speed'"),
    "no widths": (lambda run, new: bcnet.retrain(model=TinyNetwork, run_dir=new), BCNetError, "missing: --data"),
    "space": (lambda run, new: bcnet.retrain(run, num_choices=3, run_dir=new, **OBJECTS), RunError, "got num_choices"),
    "widths": (lambda run, new: bcnet.retrain(run, widths=(1, 2, 3), run_dir=new, **OBJECTS), WidthError, "got 3"),
    "words": (lambda run, new: bcnet.retrain(run, widths="6,x", run_dir=new, **OBJECTS), WidthError, "got '6,x'"),
    "published": (
        lambda run, new: bcnet.retrain(run, widths="published:1", run_dir=new, **OBJECTS),
        ModelError,
        "are there for",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_leave_nothing_behind(finished, tmp_path, call, kind, message):
    with pytest.raises(kind, match=message):
        call(finished, tmp_path / "new")
    assert not (tmp_path / "new").exists() or not (tmp_path / "new" / "supernet.safetensors").exists()


def test_a_supernet_is_needed_to_search_on_it(tmp_path):
    with pytest.raises(StoppedError):
        train(tmp_path / "begun", reporter=Recorder(("supernet", 1)))
    with pytest.raises(RunError, match="needs a trained supernet"):
        bcnet.evolve(tmp_path / "begun", budget=THIRD, run_dir=tmp_path / "new", **OBJECTS)


def test_a_damaged_stage_is_not_taken_over(trained, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for path in trained.iterdir():
        if path.is_file():
            (source / path.name).write_bytes(path.read_bytes())
    content = bytearray((source / "supernet.safetensors").read_bytes())
    content[-1] ^= 1
    (source / "supernet.safetensors").write_bytes(content)
    with pytest.raises(RunError, match="is damaged"):
        bcnet.evolve(source, budget=THIRD, run_dir=tmp_path / "new", **OBJECTS)


def test_stages_of_tuned_runs_are_shared_as_far_as_they_tune_alike():
    def shared(theirs, ours):
        values = {"model": "m", "data": "d", "limits": {"macs": 0.5}, "supernet": RECIPE, "final": RECIPE}
        return {"finalists", "evolution"} & {
            *shared_stages(make_settings(**values | theirs), make_settings(**values | ours))
        }

    tuned, longer, gentle = {"tune_steps": 2}, {"finalist_steps": 9}, {"tune_lr_share": 0.5}
    assert shared(tuned | longer, tuned | longer) == {"finalists", "evolution"}
    assert shared(tuned, tuned | longer) == {"evolution"}
    assert shared(longer, longer | gentle) == {"evolution"}
    assert not shared(tuned, tuned | gentle)
    assert not shared(tuned | longer, tuned | longer | gentle)


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ({}, "supernet prior evolution reliability finalists original Uniform searched examples"),
        ({"limits": {"macs": 0.3}}, "supernet original Uniform"),  # as far as settings tell
        ({"generations": 3}, "supernet prior original Uniform"),
        ({"search_seed": 3}, "supernet prior original Uniform"),
        ({"rescored": 4}, "supernet prior evolution reliability original Uniform"),
        ({"finalist_steps": 9}, "supernet prior evolution reliability original Uniform"),
        ({"finalist_steps": 9, "tune_lr_share": 0.5}, "supernet prior evolution reliability original Uniform"),
        ({"tune_steps": 3}, "supernet prior original Uniform"),
        ({"final": RECIPE.changed({"lr": 0.1})}, "supernet prior evolution reliability finalists"),
        ({"final_seed": 3}, "supernet prior evolution reliability finalists"),
        ({"strategy": "bilateral"}, "original Uniform"),
        ({"examples": 2}, "supernet prior evolution reliability finalists original Uniform searched"),
        ({"seed": 3}, ""),
        ({"model": "other"}, ""),
        ({"num_choices": 5}, ""),
    ],
)
def test_a_stage_is_shared_where_what_it_depends_on_is(changes, shared):
    values = {"model": "m", "data": "d", "limits": {"macs": 0.5}, "supernet": RECIPE, "final": RECIPE}
    assert shared_stages(make_settings(**values), make_settings(**(values | changes))) == tuple(shared.split())


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ({}, "trials reliability finalists original Uniform searched examples"),
        ({"finalist_epochs": 2}, "trials reliability original Uniform"),
        ({"final": RECIPE.changed({"lr": 0.1})}, ""),
        ({"random_networks": 9}, "original Uniform"),
        ({"task": "regression"}, ""),
    ],
)
def test_trainings_are_shared_where_what_they_depend_on_is(changes, shared):
    values = {"model": "m", "data": "d", "limits": {"macs": 0.5}, "supernet": RECIPE, "final": RECIPE}
    values |= {"scorer": "trainings", "searcher": "model", "random_epochs": 1}
    assert shared_stages(make_settings(**values), make_settings(**(values | changes))) == tuple(shared.split())


def test_widths_alone_are_those_of_a_search_that_goes_on_from_them(finished, tmp_path):
    stages = [Recorder(), Recorder()]
    options = {"budget": HALF, "run_dir": tmp_path / "run", "recipe": RECIPE} | SMALL
    found = bcnet.find_widths(TinyNetwork, tiny_data(), reporter=stages[0], **options)
    assert not list((tmp_path / "run").glob("original*"))
    outcome = bcnet.search(TinyNetwork, tiny_data(), reporter=stages[1], **options)
    assert [s.stages for s in stages] == [
        ["supernet", "prior", "evolution", "reliability"],
        ["evolution", "original", "Uniform", "searched"],
    ]
    assert found.widths == outcome.widths
    assert comparable(tmp_path / "run") == comparable(finished)


def test_random_widths_are_found_without_final_networks(tmp_path):
    options = {"budget": HALF, "run_dir": tmp_path / "run", "recipe": RECIPE, "threads": 1, "num_choices": 4}
    found = bcnet.find_widths(
        TinyNetwork, tiny_data(), baseline="random", random_networks=3, random_epochs=1, **options
    )
    assert len(found.found.evaluations) == 3
    assert found.widths in {c.widths for c in found.found.evaluations}
    assert not list((tmp_path / "run").glob("final*"))


@pytest.mark.parametrize("find", [bcnet.find_widths, bcnet.find_network])
def test_what_scores_no_candidates_finds_no_widths(find, tmp_path):
    with pytest.raises(RecipeError, match=r"the baseline 'uniform' does not: call bcnet\.baseline"):
        find(TinyNetwork, tiny_data(), baseline="uniform", budget=HALF, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_found_network_alone_is_the_one_of_a_search_that_goes_on_from_it(finished, tmp_path):
    stages = [Recorder(), Recorder()]
    options = {"budget": HALF, "run_dir": tmp_path / "run", "recipe": RECIPE} | SMALL
    alone = bcnet.find_network(TinyNetwork, tiny_data(), reporter=stages[0], **options)
    assert not [*(tmp_path / "run").glob("original*"), *(tmp_path / "run").glob("uniform*")]
    assert bcnet.read_status(tmp_path / "run").state == "in part"
    outcome = bcnet.search(TinyNetwork, tiny_data(), reporter=stages[1], **options)
    assert [s.stages for s in stages] == [
        ["supernet", "prior", "evolution", "reliability", "searched"],
        ["evolution", "original", "Uniform"],
    ]
    assert alone.widths == outcome.widths
    assert alone.test.figures["top1"] == pytest.approx(outcome.result["networks"]["searched"]["test"]["top1"])
    assert comparable(tmp_path / "run") == comparable(finished)


def test_one_network_alone_is_trained_as_it_is_beside_others(tmp_path):
    options = {"recipe": RECIPE, "num_choices": 4, "threads": 1}
    seen = Recorder()
    alone = bcnet.train_widths(
        TinyNetwork, tiny_data(), (3, 5), run_dir=tmp_path / "alone", seed=2, reporter=seen, **options
    )
    assert seen.stages == ["searched"]
    assert alone.widths == (3, 5)
    both = bcnet.retrain(
        model=TinyNetwork, data=tiny_data(), widths=(3, 5), run_dir=tmp_path / "both", seed=2, **options
    )
    assert alone.test.figures["top1"] == pytest.approx(both.result["networks"]["searched"]["test"]["top1"])
    for mine, theirs in zip(alone.network.parameters(), both.network.parameters(), strict=True):
        assert mine.equal(theirs)


def test_one_network_alone_learns_from_the_original_where_the_recipe_says(tmp_path):
    options = {"recipe": RECIPE, "changes": {"final.distillation": {}}, "num_choices": 4, "threads": 1}
    first, second = Recorder(), Recorder()
    bcnet.train_widths(TinyNetwork, tiny_data(), (3, 5), run_dir=tmp_path / "a", reporter=first, **options)
    bcnet.train_widths(
        TinyNetwork, tiny_data(), (4, 5), run_dir=tmp_path / "b", reporter=second, take_from=[tmp_path / "a"], **options
    )
    assert first.stages == ["original", "searched"]
    assert second.stages == ["searched"]


def test_one_network_alone_needs_widths_that_fit(tmp_path):
    with pytest.raises(WidthError):
        bcnet.train_widths(TinyNetwork, tiny_data(), (3, 5, 7), run_dir=tmp_path / "run", recipe=RECIPE)
    assert not (tmp_path / "run").exists()


def test_widths_may_be_narrower_than_any_choice_of_a_search(tmp_path):
    options = {"recipe": RECIPE, "num_choices": 2, "threads": 1}  # from half of each group on
    alone = bcnet.train_widths(TinyNetwork, tiny_data(), (1, 2), run_dir=tmp_path / "alone", **options)
    both = bcnet.retrain(model=TinyNetwork, data=tiny_data(), widths=(1, 2), run_dir=tmp_path / "both", **options)
    assert alone.widths == both.widths == (1, 2)
    assert both.result["networks"]["uniform"]["macs"] > both.result["networks"]["searched"]["macs"]
