"""Latency models: fitted to times whose truth is known, on machines that are calm or not, and on real engines."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from tiny_job import TinyNetwork
from torch import nn

import bcnet
from bcnet.costs import (
    Latency,
    LatencyModel,
    Polynomial,
    Term,
    TimedNetwork,
    measure_called,
    measure_named,
    read_latency,
)
from bcnet.costs.base import fingerprint
from bcnet.errors import BudgetError, ExportError
from bcnet.latency import (
    ENGINES,
    calibration,
    draws,
    engine_of,
    fit_model,
    measure_and_fit,
    measurement,
    multiples,
)
from bcnet.latency import fit as fitting
from bcnet.latency.engines import OnnxGraph
from bcnet.latency.fit import forms
from bcnet.machine import measure
from bcnet.models import create
from bcnet.prior.expected_cost import ExpectedCost, one_hot
from bcnet.searchers.score_model import best_widths
from bcnet.space import Budget, WidthSpace
from bcnet.space.problem import Problem
from bcnet.supernet import build

LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("resnet20", "mobilenetv2")]


@pytest.fixture(scope="module")
def space():
    return WidthSpace.trace(create("resnet20", 10).build(), torch.zeros(2, 3, 32, 32), multiple_of=1)


def truth(space, widths, block=1):
    """Nanoseconds of a machine whose multiply-adds and outputs take time, in whole blocks of channels."""
    array = -(-np.array(widths) // block) * block
    made = sum(array[:, group].astype(float) for group in range(array.shape[1]))
    return 20_000 + 0.05 * space.macs_terms(array) + 300 * made


def times_of(space, count, block=1, noise=0.0, seed=0):
    widths = [w for _, w in zip(range(count), draws(space, seed), strict=False)]
    errors = np.exp(np.random.default_rng(seed).normal(0, noise, count))
    return [TimedNetwork(w, float(t), 0.0) for w, t in zip(widths, truth(space, widths, block) * errors, strict=True)]


@pytest.mark.parametrize(("block", "noise", "most"), [(1, 0.0, 0.04), (8, 0.0, 0.06), (16, 0.0, 0.06), (1, 0.02, 0.06)])
def test_times_of_a_known_machine_are_predicted(space, block, noise, most):
    model = fit_model(space, times_of(space, 36, block, noise), "here")
    unseen = np.array([m.widths for m in times_of(space, 40, seed=1)])
    errors = np.abs(model.predict(unseen) / truth(space, unseen, block) - 1)
    assert np.median(errors) < most
    assert model.error < most
    assert block == 1 or f"in {block}" in model.form


def test_nine_of_ten_unseen_networks_keep_to_the_bound(space):
    held = []
    for seed in range(8):
        model = fit_model(space, times_of(space, 30, noise=0.1, seed=seed), "here")
        unseen = times_of(space, 100, noise=0.1, seed=100 + seed)
        bound = Latency(model=model).values(space, np.array([m.widths for m in unseen]))
        held.append(np.mean([m.nanoseconds for m in unseen] <= bound))
    assert 0.84 <= np.mean(held) <= 0.97


def slower_where_misaligned(space, widths, alignment=4):
    """Nanoseconds of a machine that takes twice as long for a layer whose input is no multiple of `alignment`."""
    array = np.array(widths)
    found = 20_000 + 0.05 * space.macs_terms(array)
    for layer in space.layers:
        made = {segment.group for segment in layer.out or ()}
        for scope, count in layer.macs.terms.items():
            if scope:
                read = next((group for group in scope if group not in made), scope[0])
                found = found + 0.05 * (array[:, read] % alignment > 0) * Polynomial({scope: count})(array)
    return found


@pytest.mark.parametrize("alignment", [4, 8, 16])
def test_a_machine_that_is_slower_for_misaligned_inputs_is_predicted(space, alignment):
    def timed(seed, count):
        widths = [w for _, w in zip(range(count), draws(space, seed), strict=False)]
        taken = slower_where_misaligned(space, widths, alignment)
        return [TimedNetwork(w, float(t), 0.0) for w, t in zip(widths, taken, strict=True)]

    model = fit_model(space, timed(0, 36), "here")
    unseen = timed(1, 40)
    widths = np.array([m.widths for m in unseen])
    assert (widths % 4 == 0).all(axis=1).sum() > 10, "half of what is measured is aligned"
    errors = np.abs(model.predict(widths) / [m.nanoseconds for m in unseen] - 1)
    assert model.form.endswith(f"misaligned to {alignment}")
    assert np.median(errors) < 0.03
    assert LatencyModel.from_dict(json.loads(json.dumps(model.to_dict()))) == model
    assert alignment > 4 or set(multiples(space, model).values()) == {4}


def test_widths_keep_to_a_limit_that_does_not_grow_with_every_width(space):
    work = [*space.macs_terms.terms.items()]
    terms = [Term(0.05, 1, space.macs_terms)]
    for group in range(len(space.groups)):
        of_group = {scope: count for scope, count in work if group in scope}
        terms.append(Term(0.2, 1, Polynomial(of_group), misaligned=group))
    model = LatencyModel(fingerprint(space), "m", "f", 1.0, tuple(terms), 0.1, 0.1, 0.0, 1.0)
    latency = Latency(model=model)
    assert not latency.monotone
    assert Latency().monotone
    for share in (0.1, 0.3, 0.6):
        limit = round(share * float(latency.values(space, np.array([space.full]))[0]))
        budget = Budget({latency: limit})
        problem = Problem.of(space, budget)
        found = [space.uniform(budget), space.balanced(budget), space.random(budget), best_widths(problem, np.ones(12))]
        assert (latency.values(space, np.array(found)) <= limit).all()
        ratios = [r / 1000 for r in range(1, 1001)]
        largest = max(r for r in ratios if latency.values(space, np.array([space.scaled(r)]))[0] <= limit)
        assert sum(found[0]) >= sum(space.scaled(largest)), "no larger ratio holds the limit"


def test_half_of_what_is_measured_is_random_under_evenly_spread_multiply_adds():
    space = WidthSpace.trace(create("resnet20", 10).build(), torch.zeros(2, 3, 32, 32))
    drawn = [w for _, w in zip(range(62), draws(space, 0), strict=False)][2:]
    assert drawn == [w for _, w in zip(range(62), draws(space, 0), strict=False)][2:]
    assert len(set(drawn)) == len(drawn)
    ratios = space.cost(np.array(drawn)).macs / space.reference.macs
    even = np.linspace(0.15, 1, 30)
    assert np.abs(np.sort(ratios[1::2]) - even).max() < 0.2
    assert np.abs(np.sort(ratios[::2]) - even).max() > 0.2, "of one ratio most are cheap"


@pytest.mark.parametrize(("multiple", "alignments"), [(1, {4, 8, 16}), (4, {8, 16}), (8, {16}), (16, set())])
def test_only_alignments_that_some_width_does_not_have_are_tried(multiple, alignments):
    space = WidthSpace.trace(create("resnet20", 10).build(), torch.zeros(2, 3, 32, 32), multiple_of=multiple)
    assert {int(form.split()[-1]) for form in forms(space) if "misaligned" in form} == alignments


def test_the_form_without_large_errors_is_chosen_among_equal_medians(monkeypatch, space):
    errors = {"steady": np.full(24, 0.02), "wild": np.where(np.arange(24) % 3, 0.01, 0.5)}
    waiting = iter(errors.values())
    features = forms(space)["macs"]
    monkeypatch.setattr(fitting, "forms", lambda _: dict.fromkeys(errors, features))
    monkeypatch.setattr(fitting, "_held_out_errors", lambda *_: next(waiting))
    model = fit_model(space, times_of(space, 24), "here")
    assert model.form == "steady"
    assert model.error == pytest.approx(0.02), "what is told is the median"


def test_a_wider_network_never_takes_less_where_no_input_is_misaligned():
    space = WidthSpace.trace(create("resnet20", 10).build(), torch.zeros(2, 3, 32, 32), multiple_of=16)
    model = fit_model(space, times_of(space, 30, noise=0.2), "here")
    latency, rng = Latency(model=model), np.random.default_rng(0)
    assert latency.monotone
    widths = np.array([[rng.integers(1, g.max_width) for g in space.groups] for _ in range(50)])
    for group in range(len(space.groups)):
        wider = widths.copy()
        wider[:, group] += 1
        assert (latency.values(space, wider) >= latency.values(space, widths)).all()


@pytest.mark.parametrize("misaligned", [False, True])
def test_the_prior_sees_what_the_budget_is_held_against(space, misaligned):
    times = times_of(space, 30, block=8)
    if misaligned:
        taken = slower_where_misaligned(space, [m.widths for m in times])
        times = [dataclasses.replace(m, nanoseconds=float(t)) for m, t in zip(times, taken, strict=True)]
    latency = Latency(model=fit_model(space, times, "here"))
    assert any(term.misaligned is not None for term in latency.model.terms) >= misaligned
    (tables,) = latency.constraints(space)
    cost = ExpectedCost.of(tables, space, 1.0)
    rng, sizes = np.random.default_rng(0), [len(g.choices) for g in space.groups]
    for _ in range(20):
        indices = [int(rng.integers(size)) for size in sizes]
        widths = np.array([[g.choices[i] for g, i in zip(space.groups, indices, strict=True)]])
        assert cost(one_hot(indices, sizes)) == pytest.approx(latency.values(space, widths)[0])


class Clock:
    """Engines of a machine whose every network takes a time of its own, by its widths."""

    def __init__(self, monkeypatch, space, noise=lambda: 1.0, speed=lambda: 1.0):
        self.batches = []

        def measured(times, batch, threads):
            self.batches.append(list(batch))
            found = truth(space, batch) * speed()
            return [TimedNetwork(w, float(t), abs(noise() - 1)) for w, t in zip(batch, found, strict=True)]

        monkeypatch.setattr(measurement, "measure_networks", measured)


def test_a_space_with_few_networks_is_measured_as_far_as_it_goes(monkeypatch):
    space = WidthSpace.trace(Stubborn(), torch.zeros(2, 1, 8, 8))
    assert sorted(draws(space, 0)) == [(width,) for width in range(1, 9)]
    Clock(monkeypatch, space)
    monkeypatch.setattr(calibration, "GOOD", -1.0)
    model = measure_and_fit(space, lambda widths: nn.Identity(), torch.zeros(1), Latency())
    found = model.measured
    assert model.count == len(found) == 8
    predicted = model.predict(np.array([m.widths for m in found]))
    assert predicted == pytest.approx([m.nanoseconds for m in found], rel=0.05)


def test_calibration_ends_when_the_error_is_small(monkeypatch, space):
    clock = Clock(monkeypatch, space)
    model = measure_and_fit(space, lambda widths: nn.Identity(), torch.zeros(1), Latency())
    found = model.measured
    assert len(found) == model.count == sum(map(len, clock.batches[:1])) == calibration.FIRST
    assert [m.widths for m in found[:2]] == [space.original_widths, space.narrowest]
    assert model.original == found[0].nanoseconds
    assert len({m.widths for m in found}) == len(found)


def test_networks_near_the_limit_are_measured_last_and_once(monkeypatch, space):
    clock = Clock(monkeypatch, space)
    models = []

    def near_limit(model):
        models.append(model)
        return [space.original_widths, *(space.random(macs=0.5, seed=seed) for seed in range(calibration.NEAR))]

    call = (space, lambda widths: nn.Identity(), torch.zeros(1), Latency())
    model = measure_and_fit(*call, near_limit=near_limit)
    assert [one.count for one in models] == [calibration.FIRST]
    assert model.count == calibration.FIRST + calibration.NEAR
    assert set(clock.batches[-1]) >= set(near_limit(model)), "the original is among the references"
    assert [m.widths for m in model.measured[-calibration.NEAR :]] == near_limit(model)[1:]


def test_the_margin_is_of_the_networks_near_the_limit(monkeypatch, space):
    errors = np.concatenate([np.full(24, 0.3), np.full(12, 0.04)])
    monkeypatch.setattr(fitting, "_held_out_errors", lambda *_: errors)
    assert fit_model(space, times_of(space, 36), "here", near=12).margin == pytest.approx(0.04)
    assert fit_model(space, times_of(space, 36), "here").margin == pytest.approx(0.3)


def stopped_after(batches):
    """Told of so many batches, ends the calibration as Ctrl-C does."""
    left = iter(range(batches - 1))

    def on_measured(found):
        if next(left, None) is None:
            raise KeyboardInterrupt

    return on_measured


@pytest.mark.parametrize("batches", [1, 2])
def test_a_calibration_that_is_stopped_goes_on_with_the_times_it_has(monkeypatch, space, tmp_path, batches):
    monkeypatch.setattr(calibration, "GOOD", -1.0)
    clock = Clock(monkeypatch, space)
    call = (space, lambda widths: nn.Identity(), torch.zeros(1), Latency())
    whole = measure_and_fit(*call)
    taken = list(clock.batches)
    clock.batches.clear()
    file = tmp_path / "times"
    with pytest.raises(KeyboardInterrupt):
        measure_and_fit(*call, times_file=file, on_measured=stopped_after(batches))
    resumed = measure_and_fit(*call, times_file=file)
    assert resumed == whole
    assert clock.batches == taken


@pytest.mark.parametrize("other", ["threads", "machine", "network", "damaged"])
def test_times_of_something_else_are_taken_again(monkeypatch, space, tmp_path, other):
    clock = Clock(monkeypatch, space)
    file = tmp_path / "times"
    call = (space, lambda widths: nn.Identity(), torch.zeros(1))
    measure_and_fit(*call, Latency(), times_file=file)
    before = file.read_bytes()
    asked = Latency()
    if other == "threads":
        asked = Latency(threads=2)
    elif other == "machine":
        monkeypatch.setattr(calibration, "machine", lambda latency: "elsewhere")
    elif other == "network":
        monkeypatch.setattr(calibration, "fingerprint", lambda space: "another")
    else:
        file.write_bytes(before.replace(b"networks", b"netwerks"))
    measure_and_fit(*call, asked, times_file=file)
    assert len(clock.batches) == 2
    assert (file.read_bytes() == before) == (other == "damaged")  # which is made good


def test_a_machine_that_gets_slower_meanwhile_is_taken_as_it_was(monkeypatch, space):
    speeds = iter([1.0, 1.5, 2.0, 2.5, 3.0])
    clock = Clock(monkeypatch, space, speed=lambda: next(speeds))
    monkeypatch.setattr(calibration, "GOOD", -1.0)
    model = measure_and_fit(space, lambda widths: nn.Identity(), torch.zeros(1), Latency())
    found = model.measured
    assert len(clock.batches) > 1
    assert clock.batches[1][0] == space.original_widths
    known = len(clock.batches[1]) - calibration.MORE
    assert known >= 5
    assert set(clock.batches[1][:known]) < set(clock.batches[0])
    assert np.allclose([m.nanoseconds for m in found], truth(space, [m.widths for m in found]))
    assert model.error < 0.05


def test_a_network_that_was_disturbed_once_does_not_set_the_pace(monkeypatch, space):
    hit = set()

    def measured(times, batch, threads):
        found = truth(space, batch)
        return [TimedNetwork(w, float(t) * (1.6 if w in hit else 1.2)) for w, t in zip(batch, found, strict=True)]

    monkeypatch.setattr(measurement, "measure_networks", measured)
    known, new = times_of(space, 7), [m.widths for m in times_of(space, 9)[7:]]
    hit.add(known[0].widths)
    found = measurement.measure_steadily(lambda widths: None, new, 1, known)
    assert np.allclose([m.nanoseconds for m in found], truth(space, new))
    hit |= {m.widths for m in known[1:4]}
    with pytest.raises(BudgetError, match=r"by factors that differ by 33%, after 3 tries: .* or calibrate again"):
        measurement.measure_steadily(lambda widths: None, new, 1, known)


@pytest.mark.parametrize("exponent", [0.85, 1.0, 1.1])
def test_a_pace_that_depends_on_the_size_is_seen(monkeypatch, space, exponent):
    def measured(times, batch, threads):
        now = (truth(space, batch) / 1.3) ** (1 / exponent)
        return [TimedNetwork(w, float(t)) for w, t in zip(batch, now, strict=True)]

    monkeypatch.setattr(measurement, "measure_networks", measured)
    timed = sorted(times_of(space, 9), key=lambda m: m.nanoseconds)
    known, new = [timed[0], *timed[2:5], *timed[6:]], [timed[1].widths, timed[5].widths]
    found = measurement.measure_steadily(lambda widths: None, new, 1, known)
    assert np.allclose([m.nanoseconds for m in found], truth(space, new))


def test_networks_are_timed_in_turns_that_rotate_each_after_a_call_that_is_not_timed(monkeypatch):
    clock, called = [0.0], []
    monkeypatch.setattr(measure.time, "perf_counter", lambda: clock[0])

    def network(number, seconds):
        def call():
            called.append(number)
            clock[0] += seconds * (9.0 if called[-2:-1] != [number] else 1.0)  # cold after another one

        return call

    found = measure.times([network(0, 1e-3), network(1, 2e-3), network(2, 1.0)], 4)
    assert np.allclose(found, np.array([[1e-3], [2e-3], [1.0]]))
    assert found.shape == (3, 4)
    # The last two rounds: four, two and one call of each, and one before.
    two = [called[-20:-10], called[-10:]]
    assert [list(dict.fromkeys(once)) for once in two] == [[0, 1, 2], [1, 2, 0]]
    assert [[once.count(number) for number in range(3)] for once in two] == [[5, 3, 2]] * 2


def test_a_round_in_which_all_are_slow_is_no_slowness_of_theirs():
    rng = np.random.default_rng(0)
    true = rng.uniform(1, 9, 12)
    pace = np.where(rng.random(30) < 0.4, rng.uniform(1.2, 3.0, 30), 1.0)
    seconds = true[:, None] * pace * np.exp(rng.normal(0, 0.002, (12, 30)))
    seconds[3, [2, 5, 9, 14, 20, 27]] *= 5.0  # interrupted
    middle, noise = measure.median_and_noise(seconds)
    assert np.allclose(middle, true, rtol=0.01)
    assert noise.max() < 0.02
    steady = measure.without_drift(true[:, None] * np.ones(30))
    assert np.allclose(steady, true[:, None])


def test_networks_are_prepared_once_however_often_they_are_timed(monkeypatch):
    prepared = []
    apart = np.array([[1.0, 1.5] * 15, [1.5, 1.0] * 15])  # rounds that disagree on which is the slower one
    monkeypatch.setattr(measurement, "times", lambda calls, rounds: apart)
    with pytest.raises(BudgetError, match="after 3 tries: the machine is too busy"):
        measurement.measure_steadily(lambda widths: prepared.append(widths) or print, [(1,), (2,)], 1, ())
    assert prepared == [(1,), (2,)]


def test_a_busy_machine_is_told_of_instead_of_a_number(monkeypatch, space):
    clock = Clock(monkeypatch, space, noise=lambda: 1.3)
    with pytest.raises(BudgetError, match=r"they differ by 30%, after 3 tries: the machine is too busy"):
        measure_and_fit(space, lambda widths: nn.Identity(), torch.zeros(1), Latency())
    assert len(clock.batches) == 3
    noises = iter([1.3] * calibration.FIRST + [1.0] * 1000)
    Clock(monkeypatch, space, noise=lambda: next(noises))
    assert measure_and_fit(space, lambda widths: nn.Identity(), torch.zeros(1), Latency()).count > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet_digits", *LARGE])
def test_a_rewritten_onnx_file_is_that_of_the_network(name):
    spec = create(name, 10)
    model, image = spec.build(), torch.rand(1, *spec.input_size)
    space, graph = WidthSpace.trace(model, image), OnnxGraph()
    engine = ENGINES["onnxruntime"]()
    for seed in range(3):
        network = build(model, space, space.sample(torch.Generator().manual_seed(seed))).eval()
        engine._graph = graph
        (logits,) = engine.prepare(network, image, 1)()
        with torch.no_grad():
            assert np.allclose(logits, network(image).numpy(), atol=1e-4)
    assert graph._rewritable is True


class Stubborn(nn.Module):
    """Holds its number of channels where no weight tells it."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, x):
        x = self.first(x)
        count = x.shape[1]
        return self.second(x.reshape(x.shape[0], count // 1, 1, -1).reshape(x.shape)).mean((2, 3))


@pytest.mark.slow
def test_a_graph_with_widths_in_its_shapes_is_exported_for_each_network():
    model, image = Stubborn(), torch.rand(1, 1, 8, 8)
    space, engine = WidthSpace.trace(model, image), ENGINES["onnxruntime"]()
    for widths in ((8,), (5,), (3,)):
        network = build(model, space, widths).eval()
        (logits,) = engine.prepare(network, image, 1)()
        with torch.no_grad():
            assert np.allclose(logits, network(image).numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", pytest.param("onnxruntime", marks=pytest.mark.slow)])
def test_a_calibration_of_a_real_engine_is_kept_and_read_again(tmp_path, monkeypatch, engine):
    monkeypatch.setattr(measurement, "BUSY", np.inf)  # of a test's machine nothing is known
    monkeypatch.setattr(measurement, "ROUNDS", 4)
    asked, told = Latency(engine, threads=1, batch=64), []  # of so many the widths are what takes time
    model, image = create("resnet_digits").build(), torch.rand(1, 1, 8, 8)
    latency = bcnet.calibrate(model, image, latency=asked, path=tmp_path / "device.json", on_measured=told.append)
    assert latency == asked
    assert latency.model.count == len(told[-1]) >= calibration.FIRST
    assert engine in latency.model.machine
    assert read_latency(tmp_path / "device.json").model == latency.model
    assert [file.name for file in tmp_path.iterdir()] == ["device.json"]
    space = WidthSpace.trace(model, image)
    assert latency.model.space == fingerprint(space)
    narrow, full = latency.values(space, np.array([space.narrowest, space.full]))
    assert 0 < narrow < full
    limits = Budget({latency: 0.7}).resolve(space.with_measures(Budget({latency: 0.7})).reference)
    assert limits.limits[latency] == int(0.7 * latency.model.original)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "a latency model must be a file of `bcnet calibrate`; .* is not one"),
        ("{}", "is not one"),
        ('{"engine": "torch", "threads": 1, "batch": 1, "model": {"terms": [[1, 1, [[[0], 1]]]]}}', "is not one"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_model_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "device.json").write_text(content)
    with pytest.raises(BudgetError, match=message):
        read_latency(tmp_path / "device.json")


def test_a_model_of_negative_times_is_refused():
    model = LatencyModel("s", "m", "f", 1.0, (Term(-1.0, 1, Polynomial({(0,): 1})),), 0.1, 0.1, 0.1, 1.0)
    with pytest.raises(ValueError, match="at least 0"):
        LatencyModel.from_dict(json.loads(json.dumps(model.to_dict())))
    good = dataclasses.replace(model, terms=(Term(1.0, 8, Polynomial({(0, 1): 2})),))
    assert LatencyModel.from_dict(json.loads(json.dumps(good.to_dict()))) == good


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        ("latency", Latency()),
        ("latency:onnxruntime", Latency("onnxruntime")),
        ("latency:torch:2", Latency(threads=2)),
        ("latency:onnxruntime:1:8", Latency("onnxruntime", batch=8)),
        ("latency:litert:int8", Latency("litert:int8")),
        ("latency:executorch:int8:2", Latency("executorch:int8", threads=2)),
    ],
)
def test_a_limit_on_latency_has_a_name_for_files_and_commands(text, measure):
    assert measure_named(text) == measure_called(text) == measure
    assert measure.description == text


def test_an_engine_that_has_no_int8_is_refused_by_its_name():
    with pytest.raises(BudgetError, match=r"an engine must be one of .*; got 'ncnn:int8'"):
        measure_named("latency:ncnn:int8:2")


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("2", "a time such as 2 ms; got '2'"),
        ("2_000", "got '2_000'"),
        ("2 parsecs", "got '2 parsecs'"),
        ("-1ms", "got '-1ms'"),
        (0, "ratio"),
    ],
)
def test_a_time_without_a_unit_is_refused(limit, message):
    with pytest.raises(BudgetError, match=message):
        Budget(latency=limit)


def test_limits_on_latency_are_times():
    for text in ("2 ms", "2ms", "2000us", "2_000 µs", "0.002 s"):
        assert Budget(latency=text) == Budget(latency=2_000_000)
    assert str(Budget(latency="2 ms")) == "2 ms"
    assert str(Budget(latency=0.5)) == "0.5x latency"


@pytest.mark.parametrize("settings", [{"engine": "tensorrt"}, {"threads": 0}, {"batch": True}])
def test_settings_that_no_engine_takes_are_refused(settings):
    with pytest.raises(BudgetError, match="got"):
        Latency(**settings)


def test_the_engine_is_given_as_a_measure():
    with pytest.raises(BudgetError, match=r"must be a bcnet.Latency; got 'onnxruntime'"):
        bcnet.calibrate(torch.nn.Conv2d(3, 4, 3), torch.zeros(2, 3, 8, 8), latency="onnxruntime")


def test_an_engine_that_is_not_there_says_so(monkeypatch):
    with pytest.raises(
        ExportError,
        match=r"an engine must be one of torch, cuda, onnxruntime, .*, executorch:int8; got 'x'",
    ):
        engine_of("x")
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    with pytest.raises(ExportError, match=r"the engine openvino is a package of its own.*bcnet\[openvino\]"):
        engine_of("openvino").prepare(TinyNetwork(), torch.zeros(1, 1, 8, 8), 1)


def test_a_device_that_is_none_here_is_timed_elsewhere():
    with pytest.raises(ExportError, match=r"give its calibration as --latency-model.*--from times.csv"):
        engine_of("other")
    if not torch.cuda.is_available():
        with pytest.raises(ExportError, match="the engine cuda runs on a GPU, and torch finds none here"):
            engine_of("cuda").prepare(TinyNetwork(), torch.zeros(1, 1, 8, 8), 1)


@pytest.mark.slow
def test_multiples_that_pay_are_those_of_the_blocks_that_a_machine_computes_in():
    space = WidthSpace.trace(create("vgg19", 10).build(), torch.zeros(2, 3, 32, 32), multiple_of=1)
    early = [number for number, group in enumerate(space.groups) if group.max_width <= 128]

    def seconds(widths):
        """A machine that computes early layers channel by channel, late ones in blocks of 16."""
        array = np.array(widths, dtype=np.int64)
        mixed = -(-array // 16) * 16
        mixed[:, early] = array[:, early]
        return 10_000 + 0.05 * space.macs_terms(mixed)

    widths = [w for _, w in zip(range(60), draws(space, 0), strict=False)]
    found = [TimedNetwork(w, float(t)) for w, t in zip(widths, seconds(widths), strict=True)]
    steps = multiples(space, fit_model(space, found, "here"))
    assert list(steps) == [group.name for group in space.groups]
    wide = [steps[group.name] for group in space.groups if group.max_width == 512]
    assert wide.count(16) >= len(wide) / 2
    assert min(wide) > 1, "the last layers take so little time that blocks of 4 explain it as well"
    assert [steps[space.groups[number].name] for number in early[:3]] == [1, 1, 1]
    plain = fit_model(space, [TimedNetwork(w, float(truth(space, [w])[0])) for w in widths], "here")
    assert list(multiples(space, plain).values()).count(1) >= len(space.groups) - 2


@pytest.mark.slow
def test_a_group_keeps_two_multiples_at_least():
    space = WidthSpace.trace(create("resnet20", 10).build(), torch.zeros(2, 3, 32, 32), multiple_of=1)
    only = LatencyModel("s", "m", "f", 1.0, (Term(1.0, 16, space.macs_terms),), 0.1, 0.1, 0.1, 1.0)
    steps = multiples(space, only)
    assert {(g.max_width, steps[g.name]) for g in space.groups} == {(16, 8), (32, 16), (64, 16)}
    narrow = WidthSpace.trace(create("resnet20", 10).build(), torch.zeros(2, 3, 32, 32), multiple_of=steps)
    assert all(choice % steps[g.name] == 0 for g in narrow.groups for choice in g.choices)
    assert min(len(g.choices) for g in narrow.groups) == 2
