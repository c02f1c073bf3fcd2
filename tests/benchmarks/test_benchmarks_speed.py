"""The speed benchmarks: rivals that compute what they claim to, turns, and rows that are there once."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import typer

from bcnet.supernet import Supernet
from bcnet.train import Complementary, SupernetLearner
from benchmarks import speed_gpu, speed_waiting
from benchmarks.speed_masked import MaskedTrainee
from benchmarks.speed_profile import REST, kind_of
from benchmarks.speed_table import PAGE, STEP_20, newest, page, results, tables
from benchmarks.speed_tries import FixedPairs, FixedSteps, terms_without_full
from benchmarks.speed_turns import Figure, Pace, Turns, clock, in_turns
from benchmarks.speed_waiting import covered
from benchmarks.speed_workloads import VARIANTS, Steps, Workload

ROOT = Path(__file__).parents[2]
SECTIONS = ["counting", "steps", "scoring", "memory", "profile", "pairs", "search", "free search", "images"]
GPU_SECTIONS = ["gpu steps", "gpu scoring", "gpu tries", "gpu training"]


@pytest.mark.parametrize("way", ["feature maps", "scale and shift"])
def test_masked_paths_are_the_sliced_ones(way):
    work = Workload("resnet_digits", 8, 4)
    model, images = work.model.double(), work.images.double()
    supernet = Supernet(model, work.space)
    masked = MaskedTrainee(model, work.space, Complementary(), way)
    before = dict(masked.module.named_parameters())
    for path in (path for term in work.terms(0) for path in term.paths):
        (logits,) = masked.forward(images, (path,))
        expected = supernet(images, path.widths, path.side)
        torch.testing.assert_close(logits, expected)
        (logits**2).sum().backward()
        (expected**2).sum().backward()
    for name, parameter in supernet.network.named_parameters():
        assert before[name] is masked.module.get_parameter(name)
        torch.testing.assert_close(before[name].grad, parameter.grad)


def test_a_step_changes_the_weights_whoever_takes_it():
    work = Workload("resnet_digits", 8, 4)
    for learner in (
        SupernetLearner(Supernet(work.model, work.space), Complementary()),
        MaskedTrainee(work.fresh(VARIANTS[0]), work.space, Complementary(), "scale and shift"),
    ):
        before = [parameter.clone() for parameter in learner.module.parameters()]
        Steps(learner, work, VARIANTS[0]).take(work.terms(0))
        after = list(learner.module.parameters())
        assert not any(torch.equal(a, b) for a, b in zip(after, before, strict=True))


def test_turns_prepare_each_thing_before_it_runs_and_keep_the_first_first():
    heard: list[str] = []

    def arms(number):
        def said(text):
            return lambda: heard.append(f"{text}{number}")

        return {name: (said(f"prepare {name}"), said(name)) for name in "abc"}

    turns = in_turns(arms, Pace(0, 2), warmup=1)
    orders = {-1: "abc", 0: "abc", 1: "acb"}
    kinds = ("prepare ", "")
    assert heard == [f"{kind}{name}{number}" for number, names in orders.items() for name in names for kind in kinds]
    assert {name: seconds.shape for name, seconds in turns.taken.items()} == {"a": (2,), "b": (2,), "c": (2,)}


def test_a_gpu_has_done_all_it_was_given_whenever_the_clock_is_read(monkeypatch):
    heard: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: heard.append(device))
    in_turns(
        lambda number: {"a": (lambda: heard.append("prepare"), lambda: heard.append("a"))}, Pace(0, 0, 1), device="cuda"
    )
    assert heard[:5] == ["prepare", "cuda", "a", "cuda", "cuda"]
    assert (clock("cuda"), clock("cpu") == "CPU") == ("wall", torch.get_num_threads() == 1)


def test_ratios_are_medians_of_those_of_the_rounds():
    turns = Turns({"a": np.array([1.0, 8.0, 9.0]), "b": np.array([1.0, 2.0, 3.0])})
    assert turns.ratio("a / 2 b", "a", "b", times=2) == Figure("a / 2 b", 1.5, "ratio", 1.0, 1.75, 3)
    assert turns.fastest() == "b"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sections"),
    [(("speed", "--threads", "1"), SECTIONS), (("speed_gpu", "--device", "cpu"), GPU_SECTIONS)],
)
def test_the_quick_benchmark_runs_once(tmp_path, words, sections):
    module, *options = words
    command = [sys.executable, "-m", f"benchmarks.{module}", "--quick", *options, "--out", str(tmp_path / "speed.csv")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for _ in range(2):
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    with (tmp_path / "speed.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["section"] for row in rows if row["figure"] == "end of cell"] == sections
    assert all(float(row["value"]) > 0 for row in rows)


def test_what_is_left_of_a_gpu_benchmark_is_said(tmp_path, capsys):
    speed_gpu.main(device="cpu", minutes=-1, quick=True, out=tmp_path / "speed.csv")
    assert "4 cells are left" in capsys.readouterr().out
    assert not (tmp_path / "speed.csv").exists()
    if not torch.cuda.is_available():
        with pytest.raises(typer.BadParameter, match="there is no GPU here"):
            speed_gpu.main(device="cuda", out=tmp_path / "speed.csv")


@pytest.mark.slow
def test_sides_as_inputs_give_the_pairs_of_all_widths_by_one_graph():
    work = Workload("resnet_digits", 8, 4)
    network = Supernet(work.model.double(), work.space).network
    fixed = FixedPairs(network, work.space)
    graphs = torch._dynamo.utils.counters["stats"]
    torch._dynamo.reset()
    compiled = torch.compile(fixed.by_sides, fullgraph=True, dynamic=False, backend="aot_eager")
    met = []
    for number in range(4):
        left = terms_without_full(work, number)[0].recorded
        expected = fixed.forward(work.images.double(), left, work.space.complement(left))
        for forward in (fixed.by_sides, compiled):
            found = forward(work.images.double(), fixed.sides(left))
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a, b)
        gradients = [
            torch.autograd.grad(sum((half**2).sum() for half in halves), list(network.parameters()))
            for halves in (expected, found)
        ]
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b)
        met.append(graphs["unique_graphs"])
    assert len(set(met)) == 1  # compiled for the first widths, and not again
    torch._dynamo.reset()


def test_steps_with_sides_as_inputs_are_those_of_a_run():
    work = Workload("resnet_digits", 8, 4)
    learner = work.supernet_learner(VARIANTS[0], pairs=True)
    ours, fixed = Steps(learner, work, VARIANTS[0]), FixedSteps(work, VARIANTS[0])
    for number in range(3):
        terms = terms_without_full(work, number)
        ours.take(terms)
        fixed.take(terms)
    for a, b in zip(learner.supernet.network.parameters(), fixed.network.parameters(), strict=True):
        torch.testing.assert_close(a, b)
        assert not a.isnan().any()


def test_what_a_gpu_does_not_compute_it_waits(monkeypatch):
    called = []

    def half_a_second(call, *device):
        call(len(called))  # a step, by its number
        called.append(device)
        return 0.5

    monkeypatch.setattr(speed_waiting, "computing", half_a_second)
    monkeypatch.setattr(speed_waiting, "peak", half_a_second)
    found = {figure.name: figure for figure in speed_waiting.figures(Workload("resnet_digits", 8, 4), Pace(0, 2, 2))}
    assert called == [(), (), ("cpu",), ("cpu",)]
    for step in ("supernet", "full-width"):
        share = found[f"share that the GPU waits in a {step} step"]
        assert share.low <= share.value <= share.high < 1
    assert found["peak of a supernet step / full"].value == 1.0


def test_time_that_streams_share_counts_once():
    assert covered([(5.0, 7.0), (0.0, 2.0), (1.0, 3.0), (1.5, 2.5)]) == 5.0
    assert covered([]) == 0.0


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::convolution_backward", "convolution and linear"),
        ("aten::addmm", "convolution and linear"),
        ("aten::native_batch_norm_backward", "batch norm"),
        ("aten::_to_copy", "copies and casts"),
        ("aten::_foreach_add_", "update"),
        ("Optimizer.step#SGD.step", "update"),
        ("aten::threshold_backward", "activations, sums and pooling"),
        ("aten::empty", REST),
    ],
)
def test_every_operator_of_a_profile_has_one_kind(operator, kind):
    assert kind_of(operator) == kind


def row(**changes):
    network, configuration = STEP_20
    values = {
        "section": "steps",
        "network": network,
        "configuration": configuration,
        "figure": "step / four standalone",
    }
    measured = {"value": "0.9", "low": "0.8", "high": "1.2", "unit": "ratio", "rounds": "5", "threads": "1"}
    return values | measured | {"waiting": "0.25"} | changes


def test_the_newest_row_of_a_figure_counts():
    rows = [row(value="2"), row(threads="2"), row(value="0.5")]
    assert newest(rows) == [row(value="0.5"), row(threads="2")]


@pytest.mark.parametrize(("value", "met"), [("0.9", "yes"), ("1", "yes"), ("1.01", "no")])
def test_the_table_says_which_targets_are_met(value, met):
    first, second = tables([row(value=value), row(figure="tracing", value="1500", unit="s", rounds="1")]).split("\n\n")
    *_, line = first.splitlines()
    shown = f"{float(value):.3g} (0.8 to 1.2)"
    assert line == f"| resnet20: step / four standalone | {STEP_20[1]} | {shown} | at most 1 | {met} | 1 | 25 % |"
    assert second.splitlines()[-1] == f"| resnet20: tracing | {STEP_20[1]} | 1,500 s | 1 | 25 % |"


def test_the_docs_show_the_figures_of_the_file():
    text = PAGE.read_text()
    assert page(text, results()) == text
