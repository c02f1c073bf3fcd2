"""What a run tells while it goes on: its record on disk, and scalars for TensorBoard."""

import sys

import pytest
from tiny_job import Recorder, StoppedError
from tiny_job import tiny_supernet_search as tiny_search

from bcnet import TensorBoard
from bcnet.errors import BCNetError, TrainingError
from bcnet.progress.base import Together
from bcnet.progress.record import read_record
from bcnet.run.status import read_status

STAGES = ["supernet", "prior", "evolution", "reliability", "original", "Uniform", "searched"]


class Watcher(Recorder):
    """Looks at the run's status from inside its stages."""

    def __init__(self, folder, stop=None):
        super().__init__(stop)
        self.folder = folder
        self.planned = []
        self.seen = {}

    def plan(self, stages):
        self.planned = list(stages)

    def figures(self, stage, step, values):
        self.seen.setdefault(stage, (read_status(self.folder), step, values))


def test_a_run_can_be_watched_from_start_to_end(tmp_path):
    watcher = Watcher(tmp_path)
    tiny_search(tmp_path, reporter=watcher)
    assert [stage.name for stage in watcher.planned] == STAGES
    assert not any(stage.finished for stage in watcher.planned)
    for name, (status, _, values) in watcher.seen.items():
        assert (status.state, status.problems) == ("running", ())
        assert {s.record.name: s.state for s in status.stages}[name] == "at hand"
        assert set(values) == ({"score", "best score", "macs"} if name == "evolution" else {"loss", "learning rate"})
    status = read_status(tmp_path)
    assert status.state == "finished"
    assert {stage.state for stage in status.stages} == {"finished"}
    assert status.evaluations == 8
    assert set(status.result) == {"original", "uniform", "searched"}


def test_the_work_of_the_plan_is_what_is_done(tmp_path):
    watcher = Watcher(tmp_path)
    outcome = tiny_search(tmp_path, reporter=watcher)
    planned = {stage.name: stage for stage in watcher.planned}
    original, searched = (outcome.result.networks[name].macs for name in ("original", "searched"))
    assert planned["original"].work == 3 * 16 * original
    assert planned["searched"].work >= 3 * 16 * searched
    assert planned["supernet"].total == 2 * (72 // 16)  # epochs, and batches of what is not held out
    assert planned["evolution"].total == len(outcome.found.evaluations)


def test_a_stopped_and_a_failed_run_say_so(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        tiny_search(tmp_path / "stopped", reporter=Stopping(("evolution", 3)))
    status = read_status(tmp_path / "stopped")
    assert status.state == "stopped"
    assert status.evaluations == 3
    with pytest.raises(TrainingError):
        tiny_search(tmp_path / "failed", training={"lr": 1e30, "schedule.kind": "cosine"})
    status = read_status(tmp_path / "failed")
    assert (status.state, "finite number" in status.message) == ("failed", True)


class Stopping(Recorder):
    def figures(self, stage, step, values):
        if (stage, step) == self.stop:
            raise KeyboardInterrupt


def test_a_run_that_is_gone_on_with_knows_what_is_finished(tmp_path):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, reporter=Recorder(("evolution", 3)))
    watcher = Watcher(tmp_path)
    tiny_search(tmp_path, reporter=watcher)
    assert [stage.name for stage in watcher.planned if stage.finished] == STAGES[:2]
    assert watcher.seen["evolution"][1] == 4  # the replayed ones are not told again
    assert read_record(tmp_path).state == "finished"


def curves(folder, stage):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / stage)).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_the_curves_of_a_resumed_run_are_those_of_one_that_never_stopped(tmp_path):
    pytest.importorskip("tensorboard")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    tiny_search(whole, reporter=TensorBoard(whole / "tensorboard"))
    for stop in (("supernet", 3), ("evolution", 3), None):
        reporters = (TensorBoard(parts / "tensorboard"), Recorder(stop))
        if stop is None:
            tiny_search(parts, reporter=Together(*reporters))
        else:
            with pytest.raises(StoppedError):
                tiny_search(parts, reporter=Together(*reporters))
    for stage in ("supernet", "evolution", "searched"):
        expected = curves(whole / "tensorboard", stage)
        assert curves(parts / "tensorboard", stage) == expected
        steps = [step for step, _ in next(iter(expected.values()))]
        assert steps == list(range(1, steps[-1] + 1))


def test_without_tensorboard_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.delattr("torch.utils.tensorboard", raising=False)
    with pytest.raises(BCNetError, match=r"pip install 'bcnet\[tensorboard\]'"):
        TensorBoard(tmp_path)
