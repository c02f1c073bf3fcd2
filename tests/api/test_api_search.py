import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from tiny_job import (
    NETWORKS,
    WEIGHTS,
    Recorder,
    StoppedError,
    TinyNetwork,
    supernet_method,
    tiny_data,
    traces,
)
from tiny_job import tiny_supernet_search as tiny_search

from bcnet import Budget, Supernet
from bcnet.errors import BudgetError, DataError, ModelError, RecipeError, RunError, TraceError, TrainingError
from bcnet.run.directory import RunDirectory, read_settings
from bcnet.space import Side
from bcnet.space.tracing import trace
from bcnet.supernet import rebuild
from bcnet.supernet.pairs import Pairs
from bcnet.train import ChannelCounts, LossRecords


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return tiny_search(folder, report=True)


def test_a_run_gives_a_plain_narrow_trained_network(finished):
    network = finished.network
    assert type(network) is TinyNetwork
    assert not network.training
    assert (network.first[0].out_channels, network.second[0].out_channels) == finished.widths
    assert network(torch.zeros(2, 1, 8, 8)).shape == (2, 3)
    result = finished.result
    searched = result.networks["searched"]
    assert searched.macs_ratio <= 0.5
    assert searched.params == sum(p.numel() for p in network.parameters())
    assert result.networks["uniform"].macs_ratio <= 0.5
    assert result.networks["original"].macs_ratio == 1
    assert tuple(result.widths.values()) == finished.widths
    assert len(finished.found.evaluations) == result.search.evaluations
    low, high = result.search.fresh_interval
    assert low <= result.search.fresh_score <= high


@pytest.mark.slow
def test_the_network_is_traced_once(tmp_path, monkeypatch):
    traced = []
    monkeypatch.setattr(
        "bcnet.space.tracing.trace", lambda model, *rest: (traced.append(model), trace(model, *rest))[1]
    )
    tiny_search(tmp_path, report=True)
    assert len(traced) == 1
    assert json.loads((tmp_path / "latency.json").read_text())["measurements"]


def test_a_notebook_shows_what_was_found(finished):
    shown = finished._repr_html_() + finished.found._repr_html_()
    for name in ("original", "uniform", "searched"):
        assert f"<td>{finished.result.networks[name].macs:,}</td>" in shown
    for text in ("TinyNetwork from a factory", "second.0", "candidates scored", str(finished.run_dir)):
        assert text in shown


def test_a_prompt_shows_what_was_found(finished):
    assert repr(finished) == str(finished)
    assert repr(finished).splitlines()[0].split()[0] == "network"
    assert repr(finished.space).splitlines()[0].startswith("2 width groups: ")
    assert "  second.0: 3 to 12 channels, 4 choices" in repr(finished.space)


def test_the_run_directory_holds_what_the_page_promises(finished):
    names = {path.name for path in finished.run_dir.iterdir()}
    assert {f"{name}.safetensors" for name in WEIGHTS} <= names
    assert {"settings.json", "space.json", "prior.json", "evaluations.sqlite", "rescored.json"} <= names
    assert {"result.json", "report.html", "ratios.svg", "ratios.png", "seconds.json"} <= names
    assert not any(name.endswith(".tmp") for name in names)
    assert list((finished.run_dir / "checkpoints").iterdir()) == []
    assert set(load_file(finished.run_dir / "final.safetensors")) == set(finished.network.state_dict())


def directory_of(outcome):
    return RunDirectory(outcome.run_dir, read_settings(outcome.run_dir))


def test_the_losses_of_every_network_are_kept(finished):
    run = directory_of(finished)
    for name, stage in zip(NETWORKS, ("original", "Uniform", "searched"), strict=True):
        records = LossRecords.load(run.file(f"{name}_losses.safetensors"), run.identity(f"{stage} losses"))
        assert records.steps.tolist() == list(range(10))
        assert all(records.losses > 0)


def test_every_channel_was_trained_equally_often(finished):
    run = directory_of(finished)
    counts = ChannelCounts.load(run.file("counts.safetensors"), run.identity("counts"))
    assert [len(of) for of in counts] == [8, 12]
    steps = len(LossRecords.load(run.file("records.safetensors"), run.identity("records"))) // 2
    for of in counts:
        assert of.min() == of.max()
        assert 2 * steps <= of[0] <= 4 * steps


@pytest.mark.parametrize("as_path", [str, Path])
def test_two_files_and_the_constructor_are_the_network(finished, as_path):
    network = rebuild(as_path(finished.run_dir / "architecture.json"), TinyNetwork)
    network.load_state_dict(load_file(finished.run_dir / "final.safetensors"))
    network.eval()
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert type(network) is TinyNetwork
    torch.testing.assert_close(network(images), finished.network(images))


def test_a_finished_run_is_not_run_again(finished):
    before = {p.name: p.stat().st_mtime_ns for p in finished.run_dir.glob("*.safetensors")}
    recorder = Recorder()
    again = tiny_search(finished.run_dir, reporter=recorder)
    assert {p.name: p.stat().st_mtime_ns for p in finished.run_dir.glob("*.safetensors")} == before
    assert recorder.stages == ["evolution"]  # replayed from its evaluations
    assert again.widths == finished.widths
    for name, tensor in finished.network.state_dict().items():
        assert torch.equal(tensor, again.network.state_dict()[name])
    assert again.result.model_copy(update={"seconds": finished.result.seconds}) == finished.result


@pytest.mark.slow
@pytest.mark.parametrize(
    "stop", [("supernet", 1), ("supernet", 8), ("prior", 1), ("evolution", 3), ("original", 2), ("searched", 10)]
)
def test_a_run_stopped_anywhere_ends_like_one_that_never_stopped(finished, tmp_path, stop):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, reporter=Recorder(stop))
    assert not (tmp_path / "result.json").exists()
    torch.rand(3)
    tiny_search(tmp_path, report=True)
    assert traces(tmp_path) == traces(finished.run_dir)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, r"another configuration: seed is 0 there and 1 here"),
        ({"training": {"lr": 0.1}}, r"training.lr is 0.05 there and 0.1 here"),
        ({"method": supernet_method(epochs=5)}, r"method.epochs is 2 there and 5 here"),
        ({"budget": Budget(macs=0.6)}, r"limits.macs is 0.5 there and 0.6 here"),
        (
            {"method": supernet_method(strategy="bilateral")},
            r"method.strategy is 'complementary' there and 'bilateral' here",
        ),
        ({"data": tiny_data(126)}, r"data is 'stripes \w+' there"),
    ],
)
def test_a_run_of_another_configuration_is_refused(finished, changes, message):
    with pytest.raises(RunError, match=message):
        tiny_search(finished.run_dir, **changes)


NAMED = {"model": "changing:make", "data": "parquet:changing"}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["model", "data"])
def test_what_changed_behind_its_name_is_refused(tmp_path, monkeypatch, what):
    def offer(channels, data):
        module = SimpleNamespace(make=lambda: TinyNetwork(channels))
        monkeypatch.setitem(sys.modules, "changing", module)
        monkeypatch.setattr("bcnet.run.workload.load", lambda name, image_size: data)

    offer(8, tiny_data())
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, reporter=Recorder(("evolution", 1)), **NAMED)
    offer(*((9, tiny_data()) if what == "model" else (8, tiny_data(126))))
    with pytest.raises(RunError, match=f"started with another {what} of the name '{NAMED[what]}'"):
        tiny_search(tmp_path, **NAMED)
    offer(8, tiny_data())
    tiny_search(tmp_path, **NAMED)


def test_what_was_left_open_is_taken_from_the_run(finished, monkeypatch):
    monkeypatch.setattr("bcnet.run.settings.usual_threads", lambda: 64)
    assert tiny_search(finished.run_dir, options={"threads": None}).widths == finished.widths


def test_a_folder_that_is_no_run_directory_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match=r"is not a run directory: it has no settings.json and holds thesis.tex"):
        tiny_search(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunError, match="is a file"):
        tiny_search(tmp_path / "thesis.tex")


@pytest.mark.parametrize("name", ["settings.json", "prior.json", "final.safetensors", "supernet.safetensors"])
def test_a_damaged_file_is_never_taken_for_a_result(finished, tmp_path, name):
    for path in finished.run_dir.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    content = bytearray((tmp_path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError, match=f"{name} is damaged"):
        tiny_search(tmp_path)


MIXED = ("supernet.safetensors", "records.safetensors", "prior.json", "space.json", "seconds.json")


@pytest.mark.slow
def test_files_of_two_runs_do_not_mix(finished, tmp_path):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, seed=1, reporter=Recorder(("prior", 1)))
    own = {name: (tmp_path / name).read_bytes() for name in MIXED}
    for name in MIXED:
        (tmp_path / name).write_bytes((finished.run_dir / name).read_bytes())
        with pytest.raises(RunError, match="belongs to"):
            tiny_search(tmp_path, seed=1)
        (tmp_path / name).write_bytes(own[name])
    tiny_search(tmp_path, seed=1)


def test_two_processes_do_not_share_a_run(finished):
    import fcntl

    with open(finished.run_dir / "lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate()
        lock.write("4711 on node7\n")
        lock.flush()
        with pytest.raises(RunError, match="process 4711 on node7 works in run directory"):
            tiny_search(finished.run_dir)


class WrongOutput(TinyNetwork):
    def forward(self, x):
        return self.second(self.first(x))


class WrongInput(TinyNetwork):
    def forward(self, x):
        return super().forward(x.repeat(1, 2, 1, 1))


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"budget": Budget(macs=10)}, BudgetError, "narrowest network of the space"),
        ({"budget": Budget(macs=1e-4)}, BudgetError, "narrowest network of the space"),
        ({"training": {"batch_size": 1000}}, DataError, "at most the number of images"),
        ({"model": WrongInput}, TraceError, "WrongInput must run on the example input"),
        ({"model": WrongOutput}, ModelError, r"must return logits \(batch, classes\)"),
        ({"model": lambda: 3}, ModelError, "must return a torch.nn.Module; got int"),
        ({"model": lambda channels: TinyNetwork(channels)}, ModelError, "has to run without arguments; it failed with"),
        ({"model": 3}, ModelError, "a function that makes one, or a name; got int"),
        ({"data": (1, 2)}, DataError, r"data must be a name, .*; got \(int, int\)"),
        ({"budget": 0.5}, BudgetError, r"a budget must be a bcnet.Budget; got 0.5: write Budget\(macs=0.5\)"),
        ({"method": "bcnt"}, RecipeError, "one of"),
        ({"method": "bcnet:population=0"}, RecipeError, "'population' must be greater than 0; got 0"),
        ({"method": "bcnet:strategy=trilateral"}, RecipeError, "'strategy' must be 'complementary'"),
        ({"options": {"device": "abacus"}}, RecipeError, "device must be one"),
        ({"options": {"speed": 3}}, RecipeError, "unknown key 'speed'"),
        (
            {"options": {"image_size": 16}},
            DataError,
            r"image_size is for raw images, which are resized here; got 16 with inputs of \(8, 8\)",
        ),
        ({"space": {"min_ratio": 0.9}}, BudgetError, "lower min_ratio"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(tmp_path, changes, kind, message):
    with pytest.raises(kind, match=message):
        tiny_search(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_stops_the_run_without_a_result(tmp_path):
    with pytest.raises(TrainingError, match=r"stage supernet, step \d+ at widths .* finite number"):
        tiny_search(tmp_path, training={"lr": 1e30, "schedule.kind": "cosine"})
    assert not list(tmp_path.glob("*.safetensors"))
    assert not (tmp_path / "result.json").exists()


def test_a_module_is_searched_as_it_is_and_stays_as_it_was(tmp_path):
    torch.manual_seed(0)
    model = TinyNetwork()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    outcome = tiny_search(tmp_path, model=model)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert outcome.network is not model
    assert json.loads((tmp_path / "settings.json").read_text())["model"].startswith("TinyNetwork ")
    with pytest.raises(RunError, match=r"its weights differ: call torch.manual_seed before making it"):
        tiny_search(tmp_path, model=TinyNetwork())


@pytest.mark.slow
def test_distillation_has_the_original_as_teacher(tmp_path):
    plain = tiny_search(tmp_path / "plain")
    taught = tiny_search(tmp_path / "taught", training={"distillation.weight": 0.9})
    assert plain.widths == taught.widths
    assert plain.result.networks["original"] == taught.result.networks["original"]
    assert not torch.equal(plain.network.head.weight, taught.network.head.weight)


@pytest.mark.parametrize("strategy", ["bilateral", "unilateral", "unilateral-complementary"])
def test_every_strategy_goes_all_the_way(tmp_path, strategy):
    outcome = tiny_search(tmp_path, budget=Budget(macs=0.6, params=0.7), method=supernet_method(strategy=strategy))
    assert outcome.result.networks["searched"].macs_ratio <= 0.6
    full = outcome.result.networks["original"].params
    assert outcome.result.networks["searched"].params <= 0.7 * full


class WithoutDropout(TinyNetwork):  # one draw for two paths is not two draws
    def __init__(self):
        super().__init__()
        self.second[3] = torch.nn.Identity()


@pytest.mark.slow
def test_pairs_train_the_supernet_that_single_paths_train(tmp_path, monkeypatch):
    forward, together = Pairs.forward, []

    def watched(self, x, left, right):
        together.append(left)
        return forward(self, x, left, right)

    monkeypatch.setattr(Pairs, "forward", watched)
    tiny_search(tmp_path / "off", model=WithoutDropout, method=supernet_method(pairs="off"))
    assert not together
    tiny_search(tmp_path / "on", model=WithoutDropout, method=supernet_method(pairs="on"))
    assert together
    alone, paired = (load_file(tmp_path / name / "supernet.safetensors") for name in ("off", "on"))
    for name, weights in alone.items():
        torch.testing.assert_close(paired[name], weights, rtol=1e-3, atol=1e-5)


def test_pairs_of_a_network_that_couples_channels_are_refused(tmp_path):
    class Coupled(TinyNetwork):
        def forward(self, x):
            return super().forward(x).softmax(dim=1)

    with pytest.raises(RecipeError, match="pairs=on needs a network whose channels stay apart"):
        tiny_search(tmp_path, model=Coupled, method=supernet_method(pairs="on"))


def test_a_unilateral_supernet_scores_by_the_side_it_trained(tmp_path, monkeypatch):
    seen = set()
    forward = Supernet.forward

    def watched(self, x, widths, side):
        seen.add(side)
        return forward(self, x, widths, side)

    monkeypatch.setattr(Supernet, "forward", watched)
    tiny_search(tmp_path, method=supernet_method(strategy="unilateral"))
    assert seen == {Side.LEFT}


def test_candidates_can_be_ranked_by_loss(tmp_path):
    outcome = tiny_search(tmp_path, method=supernet_method(score="loss"), report=True)
    found = outcome.result.search
    low, high = found.fresh_interval
    assert found.metric == "loss"
    assert low < found.fresh_score < high <= 0
    assert all(candidate.score < 0 for candidate in outcome.found.evaluations)
    page = (tmp_path / "report.html").read_text()
    assert "score (negative loss)" in page
    assert f"{found.fresh_score:.4f} (95 % interval {low:.4f} to {high:.4f})" in page
    with pytest.raises(RunError, match="score is 'loss' there and 'accuracy' here"):
        tiny_search(tmp_path)
