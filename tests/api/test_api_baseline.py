"""Baselines: other ways to find widths, the same training, run directory and report."""

import json

import pytest
import torch
from tiny_job import RECIPE, SMALL, Recorder, StoppedError, TinyNetwork, tiny_data, tiny_search

import bcnet
from bcnet import Budget
from bcnet.distributed import ProcessGroup
from bcnet.errors import BudgetError, RecipeError, RunError
from bcnet.files.documents import read_document
from bcnet.files.tensors import read_tensors
from bcnet.run.directory import RunDirectory
from bcnet.run.workload import open_source, prepare
from bcnet.stages.base import Context
from bcnet.stages.scores import network_score
from bcnet.stages.starting import starting_network
from bcnet.train import Begun, Checkpoints, NetworkLearner, train

HALF = Budget(macs=0.5)
SLOW = pytest.mark.slow
RANDOM = {"random_networks": 3, "random_epochs": 1}


def run(name, folder, data=None, **changes):
    options = {"budget": HALF, "run_dir": folder, "recipe": RECIPE, "final_from": "scratch"} | SMALL | RANDOM | changes
    return bcnet.baseline(name, TinyNetwork, data or tiny_data(), **options)


def figures(folder):
    result = read_document(folder / "result.json")
    result.pop("seconds")
    return result


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "searched"
    tiny_search(folder)
    return folder


@pytest.mark.parametrize("name", ["uniform", pytest.param("balanced", marks=SLOW), pytest.param("random", marks=SLOW)])
def test_it_starts_as_the_usual_search_does_and_shares_the_original_with_it(name, tmp_path):
    job = TinyNetwork, tiny_data()
    asked = {"budget": HALF, "recipe": RECIPE, "num_choices": 4, "threads": 1}
    of_search = bcnet.search(*job, run_dir=tmp_path / "search", **asked)
    recorder = Recorder()
    with_random = RANDOM if name == "random" else {}
    folder = tmp_path / name
    found = bcnet.baseline(
        name, *job, run_dir=folder, take_from=[tmp_path / "search"], reporter=recorder, **asked, **with_random
    )
    assert found.result["final_from"] == of_search.result["final_from"] == "original"
    assert not {"original", "Uniform"} & {*recorder.stages}
    assert found.result["networks"]["uniform"] == of_search.result["networks"]["uniform"]


def test_it_starts_from_given_weights_where_there_are_some(tmp_path):
    asked = {"budget": HALF, "recipe": RECIPE, "num_choices": 4, "threads": 1, "run_dir": tmp_path}
    found = bcnet.baseline("balanced", TinyNetwork, tiny_data(), pretrained=TinyNetwork().state_dict(), **asked)
    assert found.result["final_from"] == "pretrained"


def test_uniform_is_trained_once_and_ends_like_any_run(tmp_path):
    recorder = Recorder()
    outcome = run("uniform", tmp_path, reporter=recorder)
    assert recorder.stages == ["original", "Uniform"]
    networks = outcome.result["networks"]
    assert networks["searched"] == networks["uniform"]
    assert (outcome.result["method"], outcome.result["search"]) == ("uniform", None)
    run_of = bcnet.FinishedRun.read(tmp_path, TinyNetwork)
    for name, tensor in run_of.network("uniform").state_dict().items():
        assert torch.equal(run_of.network("searched").state_dict()[name], tensor)
    assert bcnet.read_status(tmp_path).state == "finished"
    page = (tmp_path / "report.html").read_text()
    assert "narrowed alike in all layers under a budget of 0.5x MACs" in page
    assert not any(f'id="{part}"' in page for part in ("progress", "prior", "fairness"))


@pytest.mark.parametrize("exponent", [0.0, 1.5])
def test_balanced_is_the_formula_trained_like_any_run(tmp_path, exponent):
    recorder = Recorder()
    outcome = run("balanced", tmp_path, reporter=recorder, balance_exponent=exponent, budget=Budget(macs=0.3))
    assert recorder.stages == ["original", "Uniform", "searched"]
    space = bcnet.FinishedRun.read(tmp_path, TinyNetwork).space()
    assert outcome.widths == space.balanced(macs=0.3, exponent=exponent)
    assert (outcome.result["method"], outcome.result["search"]) == ("balanced", None)
    page = (tmp_path / "report.html").read_text()
    assert "narrowed by a formula that balances its layers under a budget of 0.3x MACs" in page
    with pytest.raises(RecipeError, match="balance_exponent"):
        run("balanced", tmp_path / "wrong", balance_exponent=3.0)


def test_final_training_is_that_of_a_search(searched, tmp_path):
    run("random", tmp_path)
    for name in ("original", "uniform"):
        theirs, ours = (bcnet.FinishedRun.read(folder, TinyNetwork).network(name) for folder in (searched, tmp_path))
        for key, tensor in theirs.state_dict().items():
            assert torch.equal(tensor, ours.state_dict()[key]), (name, key)


def test_random_takes_the_best_of_short_trainings(searched, tmp_path):
    recorder = Recorder()
    outcome = run("random", tmp_path, reporter=recorder, take_from=[searched])
    assert recorder.stages == ["trials", "searched"]
    assert len(outcome.found.evaluations) == 3
    best = max(c.score for c in outcome.found.evaluations)
    assert next(c.score for c in outcome.found.evaluations if c.widths == outcome.widths) == best
    limit = outcome.result["budget"]["macs"]
    assert all(c.cost.macs <= limit for c in outcome.found.evaluations)
    assert outcome.result["search"]["fresh_images"] == 0
    assert not list((tmp_path / "checkpoints").glob("trial*"))
    page = (tmp_path / "report.html").read_text()
    assert "scored by a short training of its own" in page
    assert "in the search, not asked again on fresh images." in page
    card = bcnet.export_run(tmp_path, TinyNetwork, format="safetensors").path.parent.parent / "model_card.md"
    assert "Best of 3 random networks after 1 epoch each;" in card.read_text()


CONTINUED = {"random_continued": True, "recipe": RECIPE.changed({"epochs": 3})}


@pytest.fixture(scope="module")
def continued(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "continued"
    return folder, run("random", folder, **CONTINUED)


def test_the_training_of_the_best_random_network_goes_on(continued, tmp_path):
    folder, outcome = continued
    settings = bcnet.Run.open(folder).settings
    workload = prepare(open_source(TinyNetwork, tiny_data(), image_size=None, seed=0), settings)
    here = Context(settings, workload, RunDirectory(folder, settings), bcnet.Reporter(), ProcessGroup())
    learner = NetworkLearner(starting_network(here, outcome.widths))
    first = Checkpoints(tmp_path / "first.safetensors", {})
    of_final = {"recipe": settings.final, "seed": settings.seed, "stage": "final"}
    train(learner, workload.training, **of_final, checkpoints=first, until=1)
    scores = [c.score for c in outcome.found.evaluations if c.widths == outcome.widths]
    assert scores == [network_score(here, learner.module.eval())]
    train(learner, workload.all_training, **of_final, begun=lambda: Begun(1, read_tensors(first.path, {})))
    for name, tensor in learner.module.state_dict().items():
        assert torch.equal(outcome.network.state_dict()[name], tensor), name
    anew = run("random", tmp_path / "anew", **CONTINUED | {"random_continued": False}, take_from=[folder])
    same = [torch.equal(t, outcome.network.state_dict()[name]) for name, t in anew.network.state_dict().items()]
    assert not all(same)
    assert not [*folder.rglob("trial-*")]
    assert "own training then went on to its end, on all training images." in (folder / "report.html").read_text()
    card = bcnet.export_run(folder, TinyNetwork, format="safetensors").path.parent.parent / "model_card.md"
    assert "Best of 3 random networks after 1 epoch each, whose own training went on; each" in card.read_text()


@pytest.mark.parametrize("stop", [("trials", 2), ("searched", 14)])
@pytest.mark.parametrize("lost", [False, True])
def test_its_training_goes_on_after_a_kill_and_where_the_short_ones_are_lost(continued, tmp_path, stop, lost):
    with pytest.raises(StoppedError):
        run("random", tmp_path, **CONTINUED, reporter=Recorder(stop))
    kept = [*tmp_path.rglob("trial-*.safetensors")]
    assert kept
    for file in kept if lost else ():
        file.unlink()
    run("random", tmp_path, **CONTINUED)
    assert figures(tmp_path) == figures(continued[0])
    for file in ("final", "final_losses"):
        assert (tmp_path / f"{file}.safetensors").read_bytes() == (continued[0] / f"{file}.safetensors").read_bytes()
    assert not [*tmp_path.rglob("trial-*")]


def test_a_training_that_has_a_checkpoint_needs_no_short_one(continued, tmp_path, monkeypatch):
    with pytest.raises(StoppedError):
        run("random", tmp_path, **CONTINUED, checkpoint_seconds=0, reporter=Recorder(("searched", 14)))
    for file in tmp_path.rglob("trial-*.safetensors"):
        file.unlink()
    monkeypatch.setattr("bcnet.stages.starting.trained_trial", None)
    run("random", tmp_path, **CONTINUED)
    assert figures(tmp_path) == figures(continued[0])


def test_the_papers_random_networks_go_on_and_given_widths_do_not(continued, tmp_path):
    folder, outcome = continued
    paper = run("random", tmp_path / "paper", preset="paper", recipe=CONTINUED["recipe"])
    assert paper.widths == outcome.widths
    assert figures(tmp_path / "paper")["networks"] == figures(folder)["networks"]
    options = {"model": TinyNetwork, "data": tiny_data()}
    given = bcnet.retrain(folder, run_dir=tmp_path / "given", widths=outcome.widths, **options)
    assert not bcnet.Run.open(tmp_path / "given").settings.random_continued
    assert given.widths == outcome.widths


@pytest.mark.parametrize(("name", "stage"), [("random", "trials"), pytest.param("autoslim", "evolution", marks=SLOW)])
def test_a_stopped_baseline_goes_on_to_the_same_end(name, stage, tmp_path):
    run(name, tmp_path / "whole")
    with pytest.raises(StoppedError):
        run(name, tmp_path / "stopped", reporter=Recorder((stage, 2)))
    with pytest.raises(StoppedError):
        run(name, tmp_path / "stopped", reporter=Recorder(("searched", 3)))
    run(name, tmp_path / "stopped")
    assert figures(tmp_path / "stopped") == figures(tmp_path / "whole")
    for file in ("final", "final_losses"):
        stopped, whole = ((tmp_path / which / f"{file}.safetensors").read_bytes() for which in ("stopped", "whole"))
        assert stopped == whole


@pytest.mark.parametrize("name", ["random", pytest.param("autoslim", marks=SLOW)])
def test_no_method_sees_the_test_images(name, tmp_path):
    data = tiny_data()
    wrong = bcnet.DataSet.from_tensors(
        (data.train.pixels, data.train.labels),
        (255 - data.test.pixels, (data.test.labels + 1) % 3),
        name="stripes",
        augmentation=data.augmentation,
    )
    # By loss, since the accuracies of networks that small are often all the same.
    right, misled = (run(name, tmp_path / which, d, score="loss") for which, d in (("right", data), ("misled", wrong)))
    assert len({c.score for c in right.found.evaluations}) == len(right.found.evaluations) > 1
    assert [(c.widths, c.score) for c in right.found.evaluations] == [
        (c.widths, c.score) for c in misled.found.evaluations
    ]
    assert right.widths == misled.widths


@pytest.mark.parametrize(("name", "words"), [("autoslim", "AutoSlim"), ("unilateral", "a unilateral supernet")])
def test_slimming_is_greedy_on_a_supernet_of_its_own(searched, tmp_path, name, words):
    recorder = Recorder()
    outcome = run(name, tmp_path, reporter=recorder, take_from=[searched])
    assert recorder.stages == ["supernet", "evolution", "searched"]
    first = outcome.found.evaluations[0]
    assert sum(w < m for w, m in zip(first.widths, (8, 12), strict=True)) == 1  # one group narrower than full
    assert outcome.result["method"] == name
    counts = bcnet.write_report(tmp_path).read_text()
    assert words in counts
    assert 'id="fairness"' in counts
    assert not any(f'id="{part}"' in counts for part in ("progress", "prior"))


@pytest.mark.parametrize(
    "searcher",
    [
        *("greedy", "greedy-evolution"),
        *(pytest.param(name, marks=SLOW) for name in ("evolution-without-prior", "prior-only", "random")),
    ],
)
def test_a_search_by_another_searcher_shares_the_supernet(searched, tmp_path, searcher):
    recorder = Recorder()
    options = {"model": TinyNetwork, "data": tiny_data()}
    bcnet.evolve(searched, searcher=searcher, run_dir=tmp_path / "other", reporter=recorder, **options)
    few = searcher == "greedy"  # two candidates within the budget, which say nothing of scores
    assert recorder.stages == ["evolution", *([] if few else ["reliability"])]
    assert (tmp_path / "other" / "prior.json").exists() == (searcher in ("greedy-evolution", "prior-only"))
    outcome = bcnet.retrain(tmp_path / "other", **options)
    assert outcome.result["networks"]["searched"]["macs_ratio"] <= 0.5


def test_fine_tuned_networks_of_a_run_are_another_run(searched, tmp_path):
    options = {"model": TinyNetwork, "data": tiny_data()}
    outcome = bcnet.retrain(searched, final_from="supernet", run_dir=tmp_path, **options)
    assert outcome.result["final_from"] == "supernet"
    assert outcome.widths == tuple(json.loads((searched / "result.json").read_text())["widths"].values())


def test_mistakes(tmp_path, searched, monkeypatch):
    with pytest.raises(
        RecipeError,
        match="is one of uniform, balanced, random, autoslim, unilateral, magnitude, taylor, fastnas; got 'x'",
    ):
        run("x", tmp_path / "new")
    with pytest.raises(RecipeError, match="'autoslim' decides strategy: leave it out"):
        run("autoslim", tmp_path / "new", strategy="bilateral")
    with pytest.raises(RecipeError, match=r'final_from="supernet" needs a supernet'):
        run("random", tmp_path / "new", final_from="supernet")
    with pytest.raises(RecipeError, match=r"random_continued goes on .*; got baseline 'balanced': leave it out"):
        run("balanced", tmp_path / "new", random_continued=True)
    with pytest.raises(RecipeError, match=r"random_continued goes on .* got finalist_epochs 2: leave out one"):
        run("random", tmp_path / "new", random_continued=True, finalist_epochs=2)
    with pytest.raises(BudgetError, match="a budget must admit"):
        run("uniform", tmp_path / "new", budget=Budget(macs=10))
    with pytest.raises(RunError, match="is no run directory"):
        run("uniform", tmp_path / "new", take_from=[tmp_path / "none"])
    monkeypatch.setattr("bcnet.pruners.extras.find_spec", lambda name: None)
    with pytest.raises(RecipeError, match=r"'magnitude' needs .* torch_pruning: pip install 'bcnet\[magnitude\]'"):
        run("magnitude", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    run("uniform", tmp_path / "uniform", take_from=[searched])
    with pytest.raises(RunError, match="evolve searches on a trained supernet"):
        bcnet.evolve(tmp_path / "uniform", model=TinyNetwork, data=tiny_data())


def test_magnitude_prunes_the_trained_original(searched, tmp_path):
    pytest.importorskip("torch_pruning", reason="the extra 'magnitude' is not installed")
    recorder = Recorder()
    outcome = run("magnitude", tmp_path, reporter=recorder, take_from=[searched])
    assert (recorder.stages[0], "original" in recorder.stages) == ("pruning", False)
    assert outcome.result["networks"]["searched"]["macs_ratio"] <= 0.5
    assert run("magnitude", tmp_path).widths == outcome.widths  # from the files


@pytest.mark.slow
def test_fastnas_goes_on_from_the_scores_that_it_has(searched, tmp_path):
    for module in ("modelopt", "torchprofile", "requests", "huggingface_hub"):
        pytest.importorskip(module, reason="the extra 'fastnas' is not installed")
    wanted = {"budget": Budget(macs=0.65)}  # 5 of 8 channels: it wants to come within 15 % of the budget
    outcome = run("fastnas", tmp_path / "whole", take_from=[searched], **wanted)
    assert 0.6 < outcome.result["networks"]["searched"]["macs_ratio"] <= 0.65
    with pytest.raises(StoppedError):
        run("fastnas", tmp_path / "stopped", take_from=[searched], reporter=_StopAfter(5), **wanted)
    scores = read_document(tmp_path / "stopped" / "pruning_scores.json")["scores"]
    assert len(scores) == 5
    assert run("fastnas", tmp_path / "stopped", **wanted).widths == outcome.widths
    assert read_document(tmp_path / "stopped" / "pruning_scores.json")["scores"][:5] == scores


class _StopAfter(Recorder):
    """Stops the pruner when it has scored so many networks."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def stage(self, name, total, unit):
        from contextlib import contextmanager

        @contextmanager
        def inside():
            def advance(done, detail):
                if detail == f"{self.count} networks scored":
                    raise StoppedError

            yield advance

        return inside()
