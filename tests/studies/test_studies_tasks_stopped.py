"""Every task's run, stopped in the middle, ends as one that never was: on one process, and on two."""

import pytest
from tiny_job import Recorder, StoppedError, supernet_method, tiny_search

from bcnet.files.documents import read_document
from studies.tasks.__main__ import JOBS
from studies.tasks.pictures import loaders

STOPS = ("supernet", 3), ("evolution", 3), ("searched", 3)


def searched(world, name, folder, stop=None):
    if name == "listen":
        pytest.importorskip("sktime", reason="the recordings are in sktime (extra studies)")
    job = JOBS[name]
    data = loaders(job.pictures, (96, 32, 32), name)
    options = {"task": job.task, "space": {"min_ratio": 0.1}, "reporter": Recorder(stop), "checkpoint_seconds": 0}
    method = supernet_method()
    return tiny_search(folder, model=job.network, data=data, training={"epochs": 1}, method=method, **options).widths


def left_in(folder):
    result = read_document(folder / "result.json")
    networks = {name: (folder / f"{name}.safetensors").read_bytes() for name in ("original", "uniform", "final")}
    return result["networks"], result["search"], networks


@pytest.mark.studies
@pytest.mark.parametrize("name", JOBS)
def test_on_one_process(name, tmp_path):
    searched(None, name, tmp_path / "whole")
    for stop in STOPS:
        with pytest.raises(StoppedError):
            searched(None, name, tmp_path / "stopped", stop)
    searched(None, name, tmp_path / "stopped")
    assert left_in(tmp_path / "stopped") == left_in(tmp_path / "whole")


@pytest.mark.studies
@pytest.mark.parametrize("name", JOBS)
def test_on_two_processes(name, tmp_path, processes):
    first, second = processes.run(2, searched, name, tmp_path / "whole")
    assert first == second
    for stop in STOPS:
        stopped, _ = processes.run(2, searched, name, tmp_path / "stopped", stop)
        assert isinstance(stopped, StoppedError)
    assert processes.run(2, searched, name, tmp_path / "stopped") == [first, first]
    assert left_in(tmp_path / "stopped") == left_in(tmp_path / "whole")
