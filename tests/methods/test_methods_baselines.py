"""Baselines: other ways to find widths, the same training, run directory and report."""

from functools import partial

import pytest
import torch
from tiny_job import Recorder, StoppedError, TinyNetwork, supernet_method, tiny_data, tiny_search

import bcnet
from bcnet import Budget
from bcnet.distributed import ProcessGroup
from bcnet.errors import BudgetError, RecipeError, RunError
from bcnet.files.documents import read_document
from bcnet.files.tensors import read_tensors
from bcnet.run.directory import RunDirectory
from bcnet.run.status import read_status
from bcnet.run.workload import open_source, prepare
from bcnet.stages.base import Context
from bcnet.stages.scores import network_score
from bcnet.stages.starting import starting_network
from bcnet.train import Checkpoints, Interrupted, NetworkLearner, train

HALF = Budget(macs=0.5)
SLOW = pytest.mark.slow
KINDS = {
    "uniform": bcnet.Uniform,
    "balanced": bcnet.Balanced,
    "random": partial(bcnet.Random, 3, epochs=1),
    "autoslim": partial(bcnet.AutoSlim, population=4, generations=2),
    "unilateral": partial(bcnet.AutoSlim, population=4, generations=2, strategy="unilateral"),
    "magnitude": partial(bcnet.Pruned, "magnitude"),
    "fastnas": partial(bcnet.Pruned, "fastnas"),
}


def run(name, folder, *, fields=None, **changes):
    return tiny_search(folder, method=KINDS[name](**(fields or {})), **{"start": "scratch"} | changes)


def figures(folder):
    result = read_document(folder / "result.json")
    result.pop("seconds")
    return result


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "searched"
    tiny_search(folder, start="scratch")
    return folder


def test_uniform_is_trained_once_and_ends_like_any_run(tmp_path):
    recorder = Recorder()
    outcome = run("uniform", tmp_path, reporter=recorder, report=True)
    assert recorder.stages == ["original", "Uniform"]
    networks = outcome.result.networks
    assert networks["searched"] == networks["uniform"]
    assert (outcome.result.method, outcome.result.search) == ("uniform", None)
    run_of = bcnet.run.finished.FinishedRun.read(tmp_path, TinyNetwork)
    for name, tensor in run_of.network("uniform").state_dict().items():
        assert torch.equal(run_of.network("searched").state_dict()[name], tensor)
    assert read_status(tmp_path).state == "finished"
    page = (tmp_path / "report.html").read_text()
    assert "narrowed by one ratio under a budget of 0.5x MACs" in page
    assert not any(f'id="{part}"' in page for part in ("progress", "prior", "fairness"))


@pytest.mark.parametrize("exponent", [0.0, 1.5])
def test_balanced_is_the_formula_trained_like_any_run(tmp_path, exponent):
    recorder = Recorder()
    outcome = run(
        "balanced", tmp_path, reporter=recorder, report=True, fields={"exponent": exponent}, budget=Budget(macs=0.3)
    )
    assert recorder.stages == ["original", "Uniform", "searched"]
    space = bcnet.run.finished.FinishedRun.read(tmp_path, TinyNetwork).space()
    assert outcome.widths == space.balanced(macs=0.3, exponent=exponent)
    assert (outcome.result.method, outcome.result.search) == ("balanced", None)
    page = (tmp_path / "report.html").read_text()
    assert "narrowed by a formula that balances its layers under a budget of 0.3x MACs" in page
    with pytest.raises(RecipeError, match="'exponent' must be less than or equal to 2; got 3"):
        bcnet.Balanced(exponent=3.0)


def test_final_training_is_that_of_a_search(searched, tmp_path):
    run("random", tmp_path)
    for name in ("original", "uniform"):
        theirs, ours = (
            bcnet.run.finished.FinishedRun.read(folder, TinyNetwork).network(name) for folder in (searched, tmp_path)
        )
        for key, tensor in theirs.state_dict().items():
            assert torch.equal(tensor, ours.state_dict()[key]), (name, key)


def test_random_takes_the_best_of_short_trainings(searched, tmp_path):
    recorder = Recorder()
    outcome = run("random", tmp_path, reporter=recorder, reuse=[searched], report=True)
    assert recorder.stages == ["trials", "searched"]
    assert len(outcome.found.evaluations) == 3
    best = max(c.score for c in outcome.found.evaluations)
    assert next(c.score for c in outcome.found.evaluations if c.widths == outcome.widths) == best
    limit = outcome.result.budget.macs
    assert all(c.cost.macs <= limit for c in outcome.found.evaluations)
    assert outcome.result.search.fresh_images == 0
    assert not list((tmp_path / "checkpoints").glob("trial*"))
    page = (tmp_path / "report.html").read_text()
    assert "scored by a short training of its own" in page
    assert "in the search, not scored again on fresh images." in page
    card = bcnet.export_run(tmp_path, TinyNetwork, format="safetensors").path.parent.parent / "model_card.md"
    assert "Best of 3 random networks after 1 epoch each;" in card.read_text()


CONTINUED = {"fields": {"continued": True}, "training": {"epochs": 3}}


@pytest.fixture(scope="module")
def continued(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "continued"
    return folder, run("random", folder, report=True, **CONTINUED)


def test_the_training_of_the_best_random_network_goes_on(continued, tmp_path):
    folder, outcome = continued
    settings = bcnet.Run.open(folder).settings
    workload = prepare(open_source(TinyNetwork, tiny_data(), image_size=None, seed=0), settings)
    here = Context(settings, workload, RunDirectory(folder, settings), bcnet.Reporter(), ProcessGroup())
    learner = NetworkLearner(starting_network(here, outcome.widths))
    first = Checkpoints(tmp_path / "first.safetensors", {})
    of_final = {"recipe": settings.training, "seed": settings.seed, "stage": "final"}
    train(learner, workload.training_batches, **of_final, checkpoints=first, until=1)
    scores = [c.score for c in outcome.found.evaluations if c.widths == outcome.widths]
    assert scores == [network_score(here, learner.module.eval())]
    train(learner, workload.all_training, **of_final, interrupted=lambda: Interrupted(1, read_tensors(first.path, {})))
    for name, tensor in learner.module.state_dict().items():
        assert torch.equal(outcome.network.state_dict()[name], tensor), name
    anew = run("random", tmp_path / "anew", **CONTINUED | {"fields": {}}, reuse=[folder])
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
    right, misled = (
        run(name, tmp_path / which, data=d, fields={"score": "loss"})
        for which, d in (("right", data), ("misled", wrong))
    )
    assert len({c.score for c in right.found.evaluations}) == len(right.found.evaluations) > 1
    assert [(c.widths, c.score) for c in right.found.evaluations] == [
        (c.widths, c.score) for c in misled.found.evaluations
    ]
    assert right.widths == misled.widths


def test_magnitude_prunes_the_trained_original(searched, tmp_path):
    pytest.importorskip("torch_pruning", reason="the extra 'magnitude' is not installed")
    recorder = Recorder()
    outcome = run("magnitude", tmp_path, reporter=recorder, reuse=[searched])
    assert (recorder.stages[0], "original" in recorder.stages) == ("pruning", False)
    assert outcome.result.networks["searched"].macs_ratio <= 0.5
    assert run("magnitude", tmp_path).widths == outcome.widths  # from the files


@pytest.mark.slow
def test_fastnas_goes_on_from_the_scores_that_it_has(searched, tmp_path):
    for module in ("modelopt", "torchprofile", "requests", "huggingface_hub"):
        pytest.importorskip(module, reason="the extra 'fastnas' is not installed")
    wanted = {"budget": Budget(macs=0.65)}  # 5 of 8 channels: it wants to come within 15 % of the budget
    outcome = run("fastnas", tmp_path / "whole", reuse=[searched], **wanted)
    assert 0.6 < outcome.result.networks["searched"].macs_ratio <= 0.65
    with pytest.raises(StoppedError):
        run("fastnas", tmp_path / "stopped", reuse=[searched], reporter=_StopAfter(5), **wanted)
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


@pytest.mark.parametrize(
    ("strategy", "words"), [("sandwich", "AutoSlim"), pytest.param("unilateral", "AutoSlim", marks=SLOW)]
)
def test_slimming_is_greedy_on_a_supernet_of_its_own(searched, tmp_path, strategy, words):
    recorder = Recorder()
    outcome = run("autoslim", tmp_path, reporter=recorder, reuse=[searched], fields={"strategy": strategy})
    assert recorder.stages == ["supernet", "evolution", "searched"]
    first = outcome.found.evaluations[0]
    assert sum(w < m for w, m in zip(first.widths, (8, 12), strict=True)) == 1  # one group narrower than full
    assert outcome.result.method == "autoslim"
    page = bcnet.write_report(tmp_path).read_text()
    assert words in page
    assert 'id="fairness"' in page
    assert not any(f'id="{part}"' in page for part in ("progress", "prior"))


@pytest.mark.parametrize(
    "searcher", ["greedy", *(pytest.param(n, marks=SLOW) for n in ("evolution-without-prior", "prior-only", "random"))]
)
def test_a_search_by_another_searcher_shares_the_supernet(tmp_path, searcher):
    tiny_search(tmp_path / "first", method=supernet_method(), until="prior")
    recorder = Recorder()
    method = supernet_method(searcher=searcher)
    outcome = tiny_search(tmp_path / "other", method=method, reuse=[tmp_path / "first"], reporter=recorder)
    assert "supernet" not in recorder.stages
    assert (tmp_path / "other" / "prior.json").exists() == (searcher == "prior-only")
    assert outcome.result.networks["searched"].macs_ratio <= 0.5


def test_fine_tuned_networks_of_a_supernet_are_another_run(tmp_path):
    first = tiny_search(tmp_path / "first", method=supernet_method())
    outcome = tiny_search(tmp_path / "tuned", method=supernet_method(), start="supernet", reuse=[tmp_path / "first"])
    assert outcome.result.start == "supernet"
    assert outcome.widths == first.widths


def test_mistakes(tmp_path, monkeypatch):
    with pytest.raises(RecipeError, match=r"start='supernet' needs a supernet, which the method random does not train"):
        run("random", tmp_path / "new", start="supernet")
    with pytest.raises(BudgetError, match="a budget must admit"):
        run("uniform", tmp_path / "new", budget=Budget(macs=10))
    with pytest.raises(RunError, match="is not a run directory"):
        run("uniform", tmp_path / "new", reuse=[tmp_path / "none"])
    monkeypatch.setattr("bcnet.pruners.reading.find_spec", lambda name: None)
    with pytest.raises(RecipeError, match=r"'magnitude' needs .* torch_pruning: pip install 'bcnet\[magnitude\]'"):
        run("magnitude", tmp_path / "new")
    assert not (tmp_path / "new").exists()
