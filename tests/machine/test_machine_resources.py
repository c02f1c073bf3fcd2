import re
import shutil
from collections import namedtuple

import pytest
import torch
from tiny_job import RECIPE, Recorder, StoppedError, TinyNetwork, supernet_method, tiny_data
from tiny_job import tiny_supernet_search as tiny_search
from torch import nn
from typer.testing import CliRunner

import bcnet
from bcnet import Budget
from bcnet.api import preview, resolve
from bcnet.cli.app import app
from bcnet.costs import Latency, LatencyModel, Term
from bcnet.costs.base import fingerprint
from bcnet.errors import RunError
from bcnet.machine import memory
from bcnet.machine.defaults import threads
from bcnet.machine.disk import free_bytes
from bcnet.machine.memory import activations
from bcnet.stages.base import search_bytes, training_bytes
from bcnet.stages.estimate import Estimate, estimate
from bcnet.stages.plan import stages_of
from bcnet.stages.running import plan_stages

Usage = namedtuple("Usage", "total used free")
ARGUMENTS = {
    "budget": Budget(macs=0.5),
    "method": supernet_method(),
    "training": RECIPE,
    "space": {"num_choices": 4},
    "options": {"threads": 1},
}


class Notes(Recorder):
    def __init__(self, stop=None):
        super().__init__(stop)
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def resolved(folder, **changes):
    return resolve(TinyNetwork, tiny_data(), run_dir=folder, **ARGUMENTS | changes)


# ---------------------------------------------------------------- disk


@pytest.mark.parametrize(
    ("stage", "stop"), [("supernet", None), ("evolution", ("prior", 1)), ("original", ("original", 1))]
)
def test_a_stage_that_will_not_fit_does_not_start(tmp_path, monkeypatch, stage, stop):
    if stop is not None:
        with pytest.raises(StoppedError):
            tiny_search(tmp_path, reporter=Recorder(stop))
    kept = {path.name for path in tmp_path.iterdir()}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10, 10, 100))
    with pytest.raises(RunError, match=rf"stage {stage} writes about .* twice that is free; .* has 100 bytes"):
        tiny_search(tmp_path)
    assert kept <= {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / f"{stage}.safetensors").exists()
    monkeypatch.undo()
    assert tiny_search(tmp_path).result.networks


@pytest.mark.parametrize("optimizer", ["sgd-nesterov", "rmsprop", "adamw"])
def test_a_training_writes_no_more_than_it_says(tmp_path, optimizer):
    changes = {"optimizer": optimizer, "lr": 0.001}
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, reporter=Recorder(("prior", 1)), checkpoint_seconds=0, training=changes)
    files = [tmp_path / "supernet.safetensors", tmp_path / "records.safetensors"]
    workload, settings = resolved(tmp_path / "other", training=RECIPE.with_changes({"optimizer": optimizer}))
    expected = training_bytes(workload.model, settings.supernet_recipe, 2 * 2 * len(workload.training_batches), 2)
    headers = 4096 * len(files)
    assert sum(file.stat().st_size for file in files) < expected + headers
    parameters = sum(p.nbytes for p in workload.model.parameters())
    assert expected > 3 * (2 if optimizer == "sgd-nesterov" else 3) * parameters


def test_a_search_stores_no_more_than_it_says(tmp_path):
    tiny_search(tmp_path, method=supernet_method(population=40, generations=3), space={"num_choices": 12})
    stored = sum(file.stat().st_size for file in tmp_path.glob("evaluations.sqlite*"))
    assert stored < search_bytes(120, 2) + 65536  # an empty database has some pages


def test_a_disk_is_found_above_a_folder_to_come(tmp_path):
    assert free_bytes(tmp_path / "a" / "b") == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.2)


# ---------------------------------------------------------------- memory


def test_activations_are_what_the_backward_pass_keeps():
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    x = torch.randn(10, 4)
    found = activations(network, lambda: network(x).sum(), len(x))
    assert found.saved == 4 * (4 + 8)  # the input and what the second layer reads, not the weights
    assert found.largest == 4 * 8
    assert found.training_bytes(100) == 100 * (48 + 2 * 32)


def test_a_containers_limit_counts(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert memory._left_in_group(tmp_path) == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._left_in_group(tmp_path) is None


def test_free_memory_is_the_least_that_is_known(monkeypatch):
    device = torch.device("cpu")
    for available, in_group, expected in ((5, 3, 3), (5, None, 5), (None, None, None)):
        monkeypatch.setattr(memory, "_available_bytes", lambda available=available: available)
        monkeypatch.setattr(memory, "_left_in_group", lambda in_group=in_group: in_group)
        assert memory.free_bytes(device) == expected


# ---------------------------------------------------------------- estimate and preview


def test_an_estimate_touches_nothing(tmp_path):
    workload, settings = resolved(tmp_path / "run")
    before = {name: tensor.clone() for name, tensor in workload.model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    found = estimate(settings, workload, plan_stages(stages_of(settings), settings, workload, set()))
    assert torch.rand(1) == expected
    for name, tensor in workload.model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert set(found.seconds) == {"supernet", "evolution", "reliability", "original", "Uniform", "searched"}
    assert all(seconds > 0 for seconds in found.seconds.values())
    assert list(tmp_path.iterdir()) == []


def test_larger_batches_take_more_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("bcnet.stages.estimate.used_bytes", lambda device: 0)

    def peak(batch_size):
        workload, settings = resolved(tmp_path, training=RECIPE.with_changes({"batch_size": batch_size}))
        return estimate(settings, workload, plan_stages(stages_of(settings), settings, workload, set())).peak

    assert peak(70) > peak(8)


def test_a_machine_too_small_is_warned_of():
    lines = Estimate({"supernet": 60.0}, 2 * 2**30, 2**30).lines()
    assert lines[0] == "Estimate: 36 s to 1 min 48 s (supernet 1 min); peak memory about 2.0 GiB of 1.0 GiB."
    assert "Insufficient memory: lower batch_size" in lines[1]
    assert len(Estimate({"supernet": 60.0}, 2**30, 2 * 2**30).lines()) == 1
    assert len(Estimate({"supernet": 60.0}, 2**30, None).lines()) == 1


def test_a_calibration_ahead_is_told_as_not_counted(tmp_path):
    budget = Budget(latency=0.5)
    lines = preview(TinyNetwork, tiny_data(), budget, tmp_path / "run").estimate.lines()
    assert lines[1].startswith("Not counted: timing 24 to 60 networks first for the latency model")
    space = bcnet.trace(TinyNetwork(), torch.zeros(2, 1, 8, 8))
    model = LatencyModel(fingerprint(space), "m", "f", 1.0, (Term(1.0, 1, space.macs_terms),), 0.1, 0.1, 0.1, 1e6)
    given = Budget({Latency(model=model): 0.5})
    assert len(preview(TinyNetwork, tiny_data(), given, tmp_path / "run").estimate.lines()) == 1
    assert len(preview(TinyNetwork, tiny_data(), Budget(macs=0.5), tmp_path / "run").estimate.lines()) == 1


@pytest.mark.parametrize(("alone", "text"), [(20.0, "One thread is 3.0 times as fast here as the 2 that"), (58.0, "")])
def test_fewer_threads_are_advised_where_they_are_faster(tmp_path, monkeypatch, alone, text):
    def told(settings, workload, planned):
        return Estimate({"trials": alone if torch.get_num_threads() == 1 else 60.0}, 1.0, None)

    monkeypatch.setattr("bcnet.api.dry_run.estimate", told)
    with threads(2):
        found = preview(TinyNetwork, tiny_data(), Budget(macs=0.5), tmp_path / "run")
        chosen = preview(TinyNetwork, tiny_data(), Budget(macs=0.5), tmp_path / "run", options={"threads": 2})
    assert found.threads_text[: len(text) or None] == text
    assert (chosen.one_thread, chosen.threads_text) == (None, "")


def test_a_run_says_what_it_will_take_and_a_finished_one_nothing(tmp_path):
    notes = Notes()
    tiny_search(tmp_path, reporter=notes)
    assert [note for note in notes.notes if re.match(r"Estimate: .* to .* \(supernet 1 s, search 1 s, final", note)]
    assert "Training: 2 epochs in batches of 16 at a rate of up to 0.05." in notes.notes
    assert [note for note in notes.notes if note.startswith("Augmentation of training images: crops of 1 px;")]
    again = Notes()
    tiny_search(tmp_path, reporter=again)
    assert not [note for note in again.notes if note.startswith(("Estimate", "Training"))]


def test_a_preview_writes_nothing(tmp_path):
    found = preview(TinyNetwork, tiny_data(), run_dir=tmp_path / "run", **ARGUMENTS)
    assert found.settings.options.device is not None
    assert found.estimate is not None
    assert 0 < found.disk < found.disk_free
    assert list(tmp_path.iterdir()) == []


def test_a_preview_of_another_configuration_is_refused_as_the_run_is(tmp_path):
    tiny_search(tmp_path)
    assert preview(TinyNetwork, tiny_data(), run_dir=tmp_path, **ARGUMENTS).estimate is None
    with pytest.raises(RunError, match=r"another configuration: seed is 0 there and 5 here"):
        preview(TinyNetwork, tiny_data(), run_dir=tmp_path, **ARGUMENTS, seed=5)


@pytest.mark.parametrize(
    ("how", "stage"), [([], "short trainings"), (["--method", "bcnet"], "supernet")], ids=["trainings", "supernet"]
)
def test_a_dry_run_shows_everything_and_writes_nothing(how, stage, tmp_path):
    search = ["search", "--model", "resnet_digits", "--data", "digits", "--budget", "0.5", "--threads", "1", *how]
    outcome = CliRunner().invoke(
        app, [*search, "--dry-run", "--all", "--out", str(tmp_path / "run")], terminal_width=120
    )
    assert outcome.exit_code == 0, outcome.output
    for text in (
        "training.on_bad_step",
        "6 width groups",
        f"({stage} ",
        "peak memory",
        "Nothing was written",
        "epochs in batches of",
    ):
        assert text in outcome.output
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_needs_no_run_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ("--model", "resnet_digits", "--data", "digits", "--budget", "0.5", "--epochs", "3")
    result = CliRunner().invoke(app, ["search", *given, "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "3 epochs in batches of" in result.output
    assert not list(tmp_path.iterdir())
