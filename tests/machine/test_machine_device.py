"""Whole runs on a device that is not the host's: all that meets is in one place, and few things wait for it."""

from collections import Counter

import pytest
from stand_in_device import outside, stand_in
from tiny_job import TinyNetwork, supernet_method
from tiny_job import tiny_supernet_search as tiny_search

from bcnet import Random
from bcnet.data import DataSet, Images
from bcnet.run import workload

AT_THE_START = {"run/workload.py", "data/images.py", "data/splits.py", "supernet/pairs.py"}
OF_A_NETWORK = {
    *("stages/starting.py", "supernet/calibration.py", "files/tensors.py"),  # placing and saving it
    "supernet/importance.py",  # which channels of trained weights it keeps
    "machine/defaults.py",  # whether it runs channels-last, tried once
}
AT_THE_END = {
    "export/latency.py",  # the networks are timed for the report, where they were trained
    "stages/examples.py",  # what they give for the few test images that the report shows
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*to a meta parameter in the current model:UserWarning")
@pytest.mark.parametrize(
    ("lives", "trainings", "scored", "changes"),
    [
        (True, 4, 3, {}),
        (False, 4, 3, {"method": supernet_method(pairs="off"), "start": "supernet"}),
        (True, 4, 3, {"model": TinyNetwork(), "start": "pretrained"}),
        (True, 4, 3, {"start": "original"}),
        (True, 4, 3, {"space": {"widen": 1.5}}),
        (True, 5, 1, {"method": Random(2, epochs=1), "start": "scratch"}),
    ],
)
def test_a_run_keeps_to_its_device(tmp_path, monkeypatch, lives, trainings, scored, changes):
    for kind in (Images, DataSet):
        monkeypatch.setattr(kind, "__post_init__", lambda self: None)  # they check values, which there are none of
    for place in ("pairs", "importance"):
        monkeypatch.setattr(f"bcnet.supernet.{place}.check_close", lambda output, expected: None)
    for place in ("run.workload", "run.finished", "api.resolution"):
        monkeypatch.setattr(f"bcnet.{place}.trace", outside(workload.trace))
    monkeypatch.setattr("bcnet.stages.running.estimate", lambda *args: None)  # hooks on saved tensors mind the block
    monkeypatch.setattr("bcnet.run.parts.lives_on", lambda device, data, free: lives)
    with stand_in() as waits:
        result = tiny_search(tmp_path, report=True, options={"device": "meta"}, **changes)
    places = Counter(wait.partition(":")[0] for wait in waits)
    assert places.pop("train/update.py") == 2 * trainings  # the first step and the last: there are fewer than 16
    assert places.pop("tasks/base.py") == 3  # one for each network
    assert places.pop("searchers/evaluator.py") == scored * len(result.found.evaluations)
    # Paths are scored again on fresh images, and all of so few to see how far scores can be believed.
    assert places.pop("stages/reliability.py", 0) == (scored == 3)
    assert set(places) <= AT_THE_START | OF_A_NETWORK | AT_THE_END
