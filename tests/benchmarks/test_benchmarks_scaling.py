"""The scaling benchmark's model against what it must obey, and the docs against the model."""

import csv
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scaling_model import (
    Job,
    Machine,
    compute_seconds,
    counted,
    floor_processes,
    generation_seconds,
    reduce_seconds,
    report,
    step_seconds,
)

ROOT = Path(__file__).parents[2]
jobs = st.builds(
    Job,
    name=st.just("net"),
    macs=st.integers(10**6, 10**11),
    params=st.integers(10**4, 10**9),
    step_macs=st.floats(1e6, 1e11),
    population=st.integers(1, 100),
)


@given(jobs, st.integers(1, 200), st.integers(1, 4096))
def test_no_number_of_processes_is_faster_than_its_share(job, processes, batch):
    machine = Machine()
    assert step_seconds(job, machine, 1, batch) <= processes * step_seconds(job, machine, processes, batch) * (1 + 1e-9)
    assert generation_seconds(job, machine, 1) <= processes * generation_seconds(job, machine, processes) * (1 + 1e-9)
    assert reduce_seconds(job, machine, 1) == 0


def test_the_sum_is_that_of_two_rings():
    job = Job("net", 1, 25_000_000, 1.0)
    machine = Machine(within=100e9, between=10e9, hop=0.0)
    assert reduce_seconds(job, machine, 2) == pytest.approx(100e6 / 100e9)
    assert reduce_seconds(job, machine, 16) == pytest.approx(2 * 7 / 8 * 100e6 / 100e9 + 100e6 / 10e9)


def test_beyond_the_floor_computing_takes_no_less_time():
    job, machine = Job("net", 4 * 10**9, 25_000_000, 4e9), Machine()
    floor = floor_processes(job, machine, 256)
    assert floor >= 2
    assert compute_seconds(job, machine, floor - 1, 256) > machine.launch
    assert compute_seconds(job, machine, 2 * floor + 2, 256) == machine.launch


def test_a_generation_takes_as_many_rounds_as_its_candidates_need():
    job, machine = Job("net", 10**9, 1, 1.0, population=40), Machine(drawing=0.0)
    one = generation_seconds(dataclasses.replace(job, population=1), machine, 1)
    for processes, rounds in ((1, 40), (8, 5), (20, 2), (32, 2), (40, 1), (64, 1)):
        assert generation_seconds(job, machine, processes) == pytest.approx(rounds * one)


@pytest.mark.slow
def test_the_docs_show_what_the_model_gives():
    assert report(counted("torchvision:resnet50"), Machine()) in (ROOT / "docs" / "distributed.md").read_text()


@pytest.mark.slow
def test_the_benchmark_runs(tmp_path):
    rendezvous = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")
    command = (*rendezvous, "-m", "benchmarks.scaling", "--quick", "--out", str(tmp_path / "scaling.csv"))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *command],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
    )
    with (tmp_path / "scaling.csv").open(newline="") as file:
        rows = [(row["benchmark"], row["processes"]) for row in csv.DictReader(file)]
    assert rows == [(name, count) for name in ("training", "search") for count in ("1", "2")]
