from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_job import tiny_data

import bcnet
from bcnet.costs import ARENA, Arena, ConvertedGraph, measure_named
from bcnet.costs.base import fingerprint
from bcnet.costs.microcontroller import ALIGNMENT, plan
from bcnet.errors import BudgetError, ExportError, RunError
from bcnet.space import WidthSpace
from bcnet.tflite import graph as reading
from bcnet.tflite.graph import read_graph

BUFFERS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 6), st.integers(0, 3)).map(lambda b: (16 * b[0], b[1], b[1] + b[2])),
    min_size=1,
    max_size=12,
)


@given(BUFFERS)
def test_a_plan_has_room_for_all_that_live_at_once(buffers):
    sizes, firsts, lasts = zip(*buffers, strict=True)
    taken = plan(sizes, tuple(zip(firsts, lasts, strict=True)))
    moments = range(max(lasts) + 1)
    peak = max(sum(s for s, f, e in buffers if f <= moment <= e) for moment in moments)
    assert peak <= taken <= sum(sizes)
    assert taken % ALIGNMENT == 0


def chain(*sizes):
    """A plan of tensors each of which one operator writes and the next one reads."""
    return plan(tuple(sizes), tuple((n, n + 1) for n in range(len(sizes))))


def test_plans_of_chains():
    assert chain(8000, 8000, 8000) == 16000
    assert chain(16, 32) == 48
    # As tflite-micro 0.dev20261023182759 took for convolutions on 25 x 5 positions. The narrow tensors of 61 channels,
    # 7,632 bytes, are placed after those of 64: wider they take a third less.
    assert chain(496, 720, 8000, 8000, 8000, 8000, 7632, 7632, 8000, 8000, 8000, 64, 16) == 23264
    assert chain(496, 720, *[8000] * 9, 64, 16) == 16000
    # Of equally large tensors the later one is placed first: else the third of 4,096 bytes would need 18,016.
    assert chain(3072, 3072, 3472, 4096, 4096, 6144, 7776, 1536, 2048, 2048) == 13920


@pytest.fixture(scope="module")
def space():
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 1))
    return WidthSpace.trace(network, torch.zeros(2, 3, 8, 8), vary_outputs=True, multiple_of=1)


def facts_of(space, widths, tail=640):
    """The facts that the converter tells of the network of `space`, as far as arenas are concerned."""
    first, second = widths
    sizes = [(3, 0, 1), (first, 1, 2), (second, 2, 2)]
    tensors = [[[1, 8, 8, channels], 1, begin, end] for channels, begin, end in sizes]
    aligned = tuple(-(-64 * channels // 16) * 16 for channels, _, _ in sizes)
    head = plan(aligned, tuple((begin, end) for _, begin, end in sizes))
    scales = sum(2 * (-(-4 * channels // 16) * 16) for channels in widths)
    return {
        "operators": ["CONV_2D", "CONV_2D"],
        "tensors": tensors,
        "channels": list(widths),
        "constants": [[[first, 3, 3, 3], 1], [[second, 1, 1, first], 1]],
        "file": 27 * first + first * second + 300,
        "arena": {"head": head, "tail": tail + scales, "total": head + tail + scales},
    }


def read(space, facts=facts_of):
    probes = reading._probes(space)
    return reading._read(space, probes, [facts(space, widths) for widths in probes])


def test_the_model_predicts_other_widths_and_is_kept_whole(space):
    model = read(space)
    assert model.tail == 640
    for widths in ((16, 8), (5, 3), (1, 8)):
        assert model.arena(np.array([widths]))[0] == facts_of(space, widths)["arena"]["total"]
    again = ConvertedGraph.from_dict(model.to_dict())
    assert again == model
    assert again.space == fingerprint(space)
    for broken in ({"lives": []}, {"tail": None}, {"sizes": [1]}):
        with pytest.raises((TypeError, ValueError)):
            ConvertedGraph.from_dict(model.to_dict() | broken)


@cache
def traced_with_arena():
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 1))
    traced = WidthSpace.trace(network, torch.zeros(2, 3, 8, 8), vary_outputs=True, multiple_of=1)
    return traced, Arena(read(traced))


@given(st.tuples(st.integers(1, 16), st.integers(1, 8)))
def test_what_the_prior_keeps_to_is_never_above_the_arena(widths):
    traced, measure = traced_with_arena()
    row = np.array([widths])
    assert all(terms(row)[0] <= measure.values(traced, row)[0] for terms in measure.constraints(traced))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda facts, widths: facts["operators"].extend(["PAD"] * (widths[0] % 2)), "another graph at other widths"),
        (lambda facts, widths: facts["tensors"][1][0].__setitem__(3, widths[0] ** 2 + 7), "follows no group"),
        (lambda facts, widths: facts["arena"].__setitem__("total", facts["arena"]["total"] + widths[0]), "left over"),
    ],
)
def test_a_graph_that_no_model_explains_is_refused(space, change, message):
    def facts(space, widths):
        found = facts_of(space, widths)
        change(found, widths if widths == space.full else tuple(w | 1 for w in widths))
        return found

    with pytest.raises(ExportError, match=message):
        read(space, facts)


def test_a_budget_names_it(space):
    budget = bcnet.Budget(arena="2 KiB")
    assert budget.limits == {ARENA: 2048}
    assert measure_named("arena") == measure_named("memory:tflm") == ARENA == Arena(read(space))
    assert str(budget) == "2 KiB of arena"
    with pytest.raises(
        RunError, match=r"bcnet\.tflite\.read_graph\(model, example_input\), or let bcnet\.search do it"
    ):
        space.uniform(budget)
    fitted = bcnet.Budget({Arena(read(space)): "2 KiB"})
    assert space.with_measures(fitted).cost(space.uniform(fitted))["arena"] <= 2048
    with pytest.raises(BudgetError, match=r"of arena .*raise the limit on arena"):
        space.feasible(bcnet.Budget({Arena(read(space)): 100}))


@pytest.mark.slow
def test_a_search_keeps_to_it_and_remembers_the_model(tmp_path, monkeypatch):
    asked = []

    def fit(model, example, *, space, on_converted):
        asked.append(space)
        on_converted(3)
        sizes = tuple(terms * 1 for terms in space.live_terms[:1])
        return ConvertedGraph(fingerprint(space), sizes, ((0, 0),), (), 64, space.params_terms, 3)

    monkeypatch.setattr("bcnet.stages.calibration.read_graph", fit)
    limits = bcnet.Budget(arena=0.7)
    found = bcnet.search(
        "resnet_digits", tiny_data(), limits, tmp_path, method=bcnet.Uniform(), epochs=1, progress=False
    )
    networks = found.result.networks
    assert networks["searched"].others["arena"] <= 0.7 * networks["original"].others["arena"]
    again = bcnet.Run.open(tmp_path)
    assert again.budget.measure("arena").countable
    assert "of arena" in (tmp_path / "report.html").read_text()
    bcnet.search("resnet_digits", tiny_data(), limits, tmp_path, method=bcnet.Uniform(), epochs=1, progress=False)
    assert len(asked) == 1, "the model is read from the run"
    other = bcnet.search(
        "resnet_digits",
        tiny_data(),
        limits,
        tmp_path / "balanced",
        method=bcnet.Balanced(),
        epochs=1,
        reuse=tmp_path,
        progress=False,
    )
    assert len(asked) == 1, "it is taken from the run that has it"
    assert other.result.networks["uniform"] == networks["uniform"]
    stored = tmp_path / "converted_graph.json"
    stored.write_text(stored.read_text().replace('"tail"', '"tale"'))
    with pytest.raises(RunError, match=r"converted_graph\.json"):
        _ = bcnet.Run.open(tmp_path).budget


def test_what_is_missing_is_named(monkeypatch, space):
    monkeypatch.setenv("BCNET_LITERT_PYTHON", "/no/such/python")
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Conv2d(16, 8, 1))
    with pytest.raises(ExportError, match=r"BCNET_LITERT_PYTHON names a Python; '/no/such/python' does not start"):
        read_graph(network, torch.zeros(2, 3, 8, 8))
