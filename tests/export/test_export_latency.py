import re

import pytest
import torch
from tiny_job import TinyNetwork, tiny_search
from torch import nn
from typer.testing import CliRunner

import bcnet
from bcnet import Budget, WidthSpace
from bcnet.cli.app import app
from bcnet.errors import ExportError, RecipeError
from bcnet.export import read_latencies
from bcnet.export.latency import Latency, round_widths
from bcnet.machine.timing import Timing, time_in_turns

FAST = {"rounds": 3, "warmup": 1}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return tiny_search(tmp_path_factory.mktemp("runs") / "whole", report=True)


def test_all_networks_are_timed_and_kept(finished):
    assert [entry["batch"] for entry in read_latencies(finished.run_dir)] == [1], "the run measures its own"
    measured = bcnet.measure_latency(finished.run_dir, TinyNetwork, **FAST)
    assert {"original", "uniform", "searched"} <= set(measured.milliseconds)
    for timing in measured.milliseconds.values():
        assert 0 < timing.low <= timing.median <= timing.high
        assert timing.count == 3
    assert measured.macs_ratio["original"] == 1
    assert measured.widths["searched"] == finished.widths
    assert all(width in (8, 12) for width in measured.widths.get("rounded", (8,)))
    bcnet.measure_latency(finished.run_dir, TinyNetwork, batch=2, **FAST)
    again = bcnet.measure_latency(finished.run_dir, TinyNetwork, **FAST)
    kept = read_latencies(finished.run_dir)
    assert [entry["batch"] for entry in kept] == [2, 1]
    assert kept[1]["milliseconds"]["searched"]["median"] == again.milliseconds["searched"].median
    assert kept[1]["verdict"] == again.verdict


@pytest.mark.slow
def test_onnxruntime_times_them_too(finished):
    measured = bcnet.measure_latency(finished.run_dir, TinyNetwork, backend="onnxruntime", batch=3, **FAST)
    assert {"original", "uniform", "searched"} <= set(measured.milliseconds)


def latency(**medians: float) -> Latency:
    times = {name: Timing(value, value - 0.1, value + 0.1, 9) for name, value in medians.items()}
    return Latency("torch", "CPU", 1, 1, times, dict.fromkeys(medians, 0.5), {})


@pytest.mark.parametrize(
    ("medians", "verdict"),
    [
        (
            {"searched": 2.0, "rounded": 1.0},
            r"are faster here: 1 ms at 0.500x of the MACs against 2 ms .* --multiple-of 8",
        ),
        ({"searched": 1.0, "rounded": 2.0}, "are not faster here: 2 ms"),
        ({"searched": 1.0, "rounded": 1.1}, "no difference beyond the spread here"),
        ({"searched": 1.0}, "are multiples of 8 already"),
    ],
)
def test_a_sentence_says_whether_multiples_pay(medians, verdict):
    assert re.search(verdict, latency(**medians).verdict)


def test_calls_take_turns_and_the_warm_up_does_not_count():
    order = []
    calls = {name: (lambda name=name: order.append(name)) for name in "abc"}
    times = time_in_turns(calls, rounds=3, warmup=1)
    assert "".join(order) == "abcabcbcacab"
    assert {timing.count for timing in times.values()} == {3}


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 40, 1), nn.ReLU(), nn.Conv2d(40, 20, 1), nn.ReLU(), nn.Conv2d(20, 2, 1)
        )

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize(
    ("widths", "budget", "expected"),
    [
        ((21, 11), 1.0, (24, 8)),
        ((37, 20), 1.0, (40, 20)),  # the full width stays
        ((3, 4), 1.0, (8, 8)),  # a multiple at least
        ((20, 13), 0.40, (24, 8)),  # both would be widened: the one widened more goes down again
        ((3, 3), 0.01, (8, 8)),  # narrower there is none
    ],
)
def test_widths_are_rounded_within_the_budget(widths, budget, expected):
    space = WidthSpace.trace(Two(), torch.zeros(2, 3, 4, 4))
    assert round_widths(space, widths, 8, Budget(macs=budget)) == expected


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"backend": "tensorrt"},
            ExportError,
            "a backend must be one of torch, onnxruntime, openvino, litert, .*, executorch:int8; got 'tensorrt'",
        ),
        ({"backend": "onnxruntime", "device": "cuda"}, ExportError, "must be timed on the cpu"),
        ({"batch": 0}, ExportError, "batch must be an int of at least 1; got 0"),
        ({"threads": True}, ExportError, "threads must be an int of at least 1"),
        ({"device": "abacus"}, RecipeError, "device must be one"),
    ],
)
def test_wishes_out_of_range_are_refused(finished, options, kind, message):
    with pytest.raises(kind, match=message):
        bcnet.measure_latency(finished.run_dir, TinyNetwork, **options)


def test_of_all_engines_one_that_refuses_the_network_is_left_out(finished, monkeypatch):
    def refuse(engine, network, inputs, threads):
        raise ExportError("no such operator")

    monkeypatch.setattr("bcnet.latency.engines.OnnxRuntime.prepare", refuse)
    monkeypatch.setattr("bcnet.export.installed_backends", lambda: ["onnxruntime", "torch"])
    arguments = ["latency", str(finished.run_dir), "--model", "tiny_job:TinyNetwork", "--rounds", "3", "--backend"]
    outcome = CliRunner().invoke(app, [*arguments, "all"])
    assert outcome.exit_code == 0, outcome.output
    assert "onnxruntime is left out: no such operator" in outcome.stdout
    assert "torch, batch 1" in outcome.stdout
    assert CliRunner().invoke(app, [*arguments, "onnxruntime"]).exit_code == 2


def test_the_command_shows_a_table_and_the_sentence(finished):
    arguments = ["latency", str(finished.run_dir), "--model", "tiny_job:TinyNetwork", "--rounds", "3"]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    for text in ("median (ms)", "quartiles", "Uniform", "searched", "ultiples of 8"):
        assert text in outcome.stdout
