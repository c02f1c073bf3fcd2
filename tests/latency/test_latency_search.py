"""Searches under a latency: calibrated first, kept to by measurement, stopped and gone on with, refused where wrong."""

import dataclasses
import io
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from tiny_job import Recorder, StoppedError, TinyNetwork, supernet_method, tiny_search
from typer.testing import CliRunner

import bcnet
from bcnet.cli.app import app
from bcnet.cli.show import show_result
from bcnet.costs import Latency, LatencyModel, Term, TimedNetwork
from bcnet.costs.base import fingerprint
from bcnet.errors import BudgetError, RunError
from bcnet.latency import calibration as latency_calibration
from bcnet.latency import draws, measure_and_fit, measurement
from bcnet.run.names import LATENCY_ROUNDS
from bcnet.searchers import Candidate
from bcnet.space import Budget, WidthSpace
from bcnet.stages import acceptance, calibration
from bcnet.stages.scores import Scorer


def truth(space, widths):
    """Nanoseconds of a machine that multiplies once in a nanosecond."""
    return 1_000.0 + space.macs_terms(np.array(widths))


def model_of(space, slower=1.0):
    terms = (Term(1.0 / slower, 1, space.macs_terms),)
    widths = [space.original_widths, *itertools.islice(draws(space, 0), 1, 12)]
    measured = tuple(TimedNetwork(w, float(truth(space, [w])[0])) for w in widths)
    original = measured[0].nanoseconds
    return LatencyModel(
        fingerprint(space), "here", "macs", 1_000.0 / slower, terms, 0.01, 0.02, 0.05, original, measured
    )


@pytest.fixture
def machine(monkeypatch):
    """A machine by the truth; what is in `slower` takes longer than a model says."""
    calls = {"calibrated": 0, "timed": [], "slower": 1.0, "drift": 1.0}

    def measure_and_fit(space, network, images, asked, *, times_file, on_measured, near_limit):
        calls["calibrated"] += 1
        model = model_of(space, calls["slower"])
        on_measured(model.measured)
        return model

    def measured(times, widths, threads):
        calls["timed"].append(list(widths))
        space = calls["space"]
        return [TimedNetwork(w, calls["drift"] * float(truth(space, [w])[0]), 0.0) for w in widths]

    monkeypatch.setattr(calibration, "measure_and_fit", measure_and_fit)
    monkeypatch.setattr("bcnet.latency.measurement.measure_networks", measured)
    monkeypatch.setattr(calibration, "machine", lambda asked: "here")
    calls["space"] = WidthSpace.trace(TinyNetwork(), torch.zeros(2, 1, 8, 8), num_choices=4)
    return calls


def test_a_search_calibrates_first_and_keeps_to_the_latency(tmp_path, machine):
    outcome = tiny_search(tmp_path / "run", budget=Budget(latency=0.6, params=0.9), report=True)
    measured = outcome.result.measured_latency
    shown = io.StringIO()
    show_result(Console(file=shown, width=200), outcome.result, "run")
    assert "Latency as measured: original" in shown.getvalue()
    assert "\\n" not in shown.getvalue(), "a line break is no text"
    limit = outcome.found.budget.limits[Latency()]
    assert limit == int(0.6 * measured["original"])
    assert measured["searched"] <= limit
    assert measured["uniform"] <= limit
    bound = outcome.result.networks["searched"].others["latency"]
    assert measured["searched"] * 1.05 == pytest.approx(bound)
    assert machine["calibrated"] == 1
    page = (tmp_path / "run" / "report.html").read_text()
    assert "0.6x latency" in page
    assert "Latency as measured: original" in page
    assert bcnet.Run.open(tmp_path / "run").budget.limits.keys() == outcome.found.budget.limits.keys()
    again = tiny_search(tmp_path / "run", budget=Budget(latency=0.6, params=0.9))
    assert machine["calibrated"] == 1
    assert again.result.networks == outcome.result.networks


def test_a_machine_that_is_slower_by_now_is_compared_by_the_original(tmp_path, machine):
    machine["drift"] = 3.0
    outcome = tiny_search(tmp_path, budget=Budget(latency=0.6))
    space = machine["space"]
    assert outcome.result.measured_latency["searched"] == pytest.approx(truth(space, [outcome.widths])[0])


def test_widths_that_are_slower_than_predicted_give_way_to_those_that_hold(tmp_path, machine):
    machine["slower"] = 1.2
    outcome = tiny_search(
        tmp_path, budget=Budget(latency="12 us"), method=supernet_method(population=16, generations=4)
    )
    assert outcome.result.measured_latency["searched"] <= 12_000
    assert outcome.result.networks["searched"].others["latency"] < 12_000 / 1.1


def test_what_noise_leaves_open_is_taken_for_slow(tmp_path, machine, monkeypatch):
    plain = measurement.measure_networks
    monkeypatch.setattr(measurement, "BUSY", 1.0)

    def noisy(times, widths, threads):
        return [dataclasses.replace(m, noise=0.2) for m in plain(times, widths, threads)]

    monkeypatch.setattr(measurement, "measure_networks", noisy)
    outcome = tiny_search(
        tmp_path, budget=Budget(latency="12 us"), method=supernet_method(population=16, generations=4)
    )
    measured = outcome.result.measured_latency
    assert measured["searched"] * 1.2 <= 12_000
    assert measured["original"] == pytest.approx(truth(machine["space"], [machine["space"].full])[0])


def test_where_none_of_the_best_holds_those_come_that_may(machine, monkeypatch):
    space, batches = machine["space"], []
    # A model of parameters alone. What it has measured says more than by how much it errs on those that are too slow.
    wrong = dataclasses.replace(model_of(space), terms=(Term(5.0, 1, space.params_terms),))
    limit = int(truth(space, [space.scaled(0.6)])[0])
    budget = Budget({Latency(model=wrong): limit})
    measuring = space.with_measures(budget)
    drawn = np.random.default_rng(0).permutation([(a, b) for a in range(1, 9) for b in range(1, 13)])
    widths = [space.full, (8, 10), *map(tuple, drawn.tolist())]
    candidates = [Candidate(w, 1.0, measuring.cost(w)) for w in dict.fromkeys(widths)]

    def timed(context, asked):
        batches.append(list(asked))
        return {w: TimedNetwork(w, float(truth(space, [w])[0]), 0.0) for w in asked}

    monkeypatch.setattr(acceptance, "time_networks", timed)
    monkeypatch.setattr(acceptance, "is_here", lambda asked: True)
    directory = SimpleNamespace(has=lambda name: False)
    context = SimpleNamespace(workload=SimpleNamespace(budget=budget, space=measuring), directory=directory)
    kept = acceptance.Acceptance(context).keep_limit(candidates[:2], candidates)
    slow = [truth(space, [w])[0] for w in batches[0]]
    assert min(slow) > limit
    assert len(batches) == 2
    assert [c.widths for c in kept] == [w for w in batches[1] if truth(space, [w])[0] <= limit] != []
    may = [c.widths for c in candidates[2:] if truth(space, [c.widths])[0] <= limit]
    assert len(may) < 0.8 * len(candidates)
    assert batches[1] == may[:8]
    assert len(kept) == 8


def test_more_widths_are_timed_before_they_are_scored(machine, monkeypatch):
    space, kept, notes = machine["space"], {}, []
    limit = int(truth(space, [space.scaled(0.6)])[0])
    budget = Budget({Latency(model=model_of(space)): limit})
    measuring = space.with_measures(budget)

    def takes(widths):
        """What no form says: networks of an odd number of channels take a tenth more."""
        return float(truth(space, [widths])[0]) * (1.1 if sum(widths) % 2 else 1.0)

    everything = sorted(itertools.product(range(1, 9), range(1, 13)), key=takes, reverse=True)
    near = [w for w in everything if 0.5 * limit < truth(space, [w])[0] <= limit]
    monkeypatch.setattr(
        acceptance, "time_networks", lambda context, asked: {w: TimedNetwork(w, takes(w), 0.0) for w in asked}
    )
    monkeypatch.setattr(acceptance, "is_here", lambda asked: True)
    context = SimpleNamespace(
        workload=SimpleNamespace(budget=budget, space=measuring),
        directory=SimpleNamespace(has=lambda name: False, write=lambda name, document: kept.update({name: document})),
        reporter=SimpleNamespace(note=notes.append),
    )
    accepting = acceptance.Acceptance(context)
    scored = [Candidate(w, 1.0, measuring.cost(w)) for w in near[:2]]
    assert accepting.another_round(SimpleNamespace(further_proposals=lambda problem, known: near), scored)
    (further,) = kept[LATENCY_ROUNDS]["rounds"]
    widths = [tuple(w) for w in further["widths"]]
    assert any(takes(w) > limit for w in near)
    assert max(map(takes, [*widths, *further["free"]])) <= limit
    assert 1 <= len(further["free"]) <= 2
    assert accepting.free == set(further["free"])
    assert set(widths) - set(further["free"]) <= set(near[2:])  # none that is scored already
    assert len(widths) == 8
    assert len(notes) == 1
    nothing = SimpleNamespace(further_proposals=lambda problem, known: [])
    assert not acceptance.Acceptance(context).another_round(nothing, scored)  # a searcher that has no more to say


def test_a_search_that_finds_none_that_holds_says_so(tmp_path, machine):
    machine["slower"] = 100.0
    with pytest.raises(
        RunError,
        match=r"within .*; none of \d+ candidates was, the quickest took .*"
        r" --reuse RUN --out NEW, which trains no supernet again",
    ):
        tiny_search(tmp_path, budget=Budget(latency="2 us"), method=supernet_method())


def test_a_search_without_a_supernet_that_finds_none_that_holds_names_the_original(tmp_path, machine):
    machine["slower"] = 100.0
    with pytest.raises(
        RunError,
        match=r"search for less by the same command with --reuse RUN --out NEW, "
        r"which trains no original again",
    ):
        tiny_search(tmp_path, budget=Budget(latency="2 us"))


def widths_score(widths):
    """Every channel helps, the last ones less."""
    return float(np.log(np.array(widths) + 1.0).sum())


@pytest.fixture
def by_own_score(monkeypatch):
    """A search whose candidates are scored by their widths alone."""
    monkeypatch.setattr("bcnet.stages.trials.trial_scorer", lambda context: Scorer(widths_score))

    def search(folder, **changes):
        return tiny_search(folder, budget=Budget(latency="9 us"), space={"num_choices": 8}, **changes)

    return search


def test_a_search_whose_best_are_too_slow_goes_on_within_what_was_measured(tmp_path, machine, by_own_score):
    machine["slower"] = 1.3
    outcome = by_own_score(tmp_path / "run")
    scores = {c.widths: c.score for c in outcome.found.evaluations}
    assert outcome.result.measured_latency["searched"] <= 9_000
    assert outcome.found.best.score > scores[outcome.widths]  # but too slow
    (further,) = json.loads((tmp_path / "run" / LATENCY_ROUNDS).read_text())["rounds"]
    assert truth(machine["space"], further["widths"]).max() <= 9_000  # timed before they are scored
    assert truth(machine["space"], further["widths"]).max() >= 0.93 * 9_000  # and the limit is used
    assert 1 <= len(further["free"]) <= 2
    assert scores[outcome.widths] >= max(scores[tuple(w)] for w in further["free"])
    assert bcnet.Run.open(tmp_path / "run").evaluations == outcome.found.evaluations
    again = by_own_score(tmp_path / "run")
    assert again.found == outcome.found


def test_a_search_killed_while_it_goes_on_ends_as_if_it_had_not_been(tmp_path, machine, by_own_score):
    machine["slower"] = 1.3
    whole = by_own_score(tmp_path / "whole")
    with pytest.raises(StoppedError):
        by_own_score(tmp_path / "killed", reporter=Recorder(("trials", len(whole.found.evaluations) - 2)))
    assert (tmp_path / "killed" / LATENCY_ROUNDS).exists()
    resumed = by_own_score(tmp_path / "killed")
    assert resumed.found == whole.found
    assert resumed.widths == whole.widths


def test_a_killed_search_goes_on_without_calibrating_again(tmp_path, machine):
    whole = tiny_search(tmp_path / "whole", budget=Budget(latency=0.6))
    with pytest.raises(StoppedError):
        tiny_search(tmp_path / "killed", budget=Budget(latency=0.6), reporter=Recorder(("original", 2)))
    resumed = tiny_search(tmp_path / "killed", budget=Budget(latency=0.6))
    assert resumed.result.networks == whole.result.networks
    assert machine["calibrated"] == 2


@pytest.mark.parametrize("share", [0.4, 0.7])
def test_a_search_calibrates_near_its_limit(tmp_path, machine, monkeypatch, share):
    monkeypatch.setattr(calibration, "measure_and_fit", measure_and_fit)
    monkeypatch.setattr(latency_calibration, "FIRST", 6)
    monkeypatch.setattr(latency_calibration, "GOOD", 1.0)
    tiny_search(tmp_path, budget=Budget(latency=share), until="widths")
    model = bcnet.Run.open(tmp_path).budget.measure("latency").model
    near = [m.nanoseconds / model.original for m in model.measured[6:]]
    assert 0.75 * share < min(near)
    assert max(near) < 1.1 * share


def test_a_search_stopped_while_it_calibrates_goes_on_with_what_was_timed(tmp_path, machine, monkeypatch):
    monkeypatch.setattr(calibration, "measure_and_fit", measure_and_fit)
    monkeypatch.setattr(latency_calibration, "FIRST", 6)
    monkeypatch.setattr(latency_calibration, "MORE", 3)
    monkeypatch.setattr(latency_calibration, "GOOD", -1.0)
    whole = tiny_search(tmp_path / "whole", budget=Budget(latency=0.6))
    calibrated = [list(batch) for batch in machine["timed"]]
    with pytest.raises(StoppedError):
        tiny_search(tmp_path / "stopped", budget=Budget(latency=0.6), reporter=Recorder(("calibration", 9)))
    assert (tmp_path / "stopped" / calibration.TIMES).exists()
    machine["timed"].clear()
    resumed = tiny_search(tmp_path / "stopped", budget=Budget(latency=0.6))
    assert machine["timed"] == calibrated[2:]
    assert not (tmp_path / "stopped" / calibration.TIMES).exists()
    assert resumed.result.networks == whole.result.networks


@pytest.mark.slow
def test_a_model_that_was_given_is_used_and_kept(tmp_path, machine):
    space = machine["space"]
    theirs = dataclasses.replace(model_of(space), machine="a phone", original=0.0)
    budget = Budget({Latency("onnxruntime", model=theirs): 0.6})
    outcome = tiny_search(tmp_path / "run", budget=budget, report=True)
    assert machine["calibrated"] == 0
    assert machine["timed"] == []
    assert outcome.result.measured_latency is None
    page = (tmp_path / "run" / "report.html").read_text()
    assert "a model of another machine: time the networks there" in page
    tighter = Budget({Latency("onnxruntime", model=theirs): 0.5})
    again = tiny_search(tmp_path / "new", budget=tighter, reuse=tmp_path / "run")
    assert again.found.budget.admits(space.with_measures(again.found.budget).cost(again.widths))
    other = Budget({Latency("onnxruntime", model=dataclasses.replace(theirs, constant=2.0)): 0.6})
    with pytest.raises(RunError, match="holds another latency model than the one given"):
        tiny_search(tmp_path / "run", budget=other)


def test_a_model_of_another_network_is_refused_before_anything_is_trained(tmp_path, machine):
    theirs = dataclasses.replace(model_of(machine["space"]), space="another")
    with pytest.raises(BudgetError, match="predicts the network that it was fitted to; got one of another"):
        tiny_search(tmp_path, budget=Budget({Latency(model=theirs): 0.6}))
    assert not (tmp_path / "supernet.safetensors").exists()


def test_a_latency_below_the_narrowest_network_is_told_before_training(tmp_path, machine):
    with pytest.raises(BudgetError, match=r"the narrowest network of the space.*raise the limit on latency"):
        tiny_search(tmp_path, budget=Budget(latency="10 ns"))
    assert not (tmp_path / "supernet.safetensors").exists()


def test_the_command_takes_a_model_and_refuses_what_does_not_fit(tmp_path):
    def run(*words):
        return CliRunner().invoke(app, [str(word) for word in words])

    job = ["search", "--model", "resnet_digits", "--data", "digits", "--out", tmp_path / "run"]
    (tmp_path / "d.json").write_text("{}")
    for words, message in (
        (["--budget", "latency=2"], "a time such as 2 ms; got '2'"),
        (["--budget", "latency=2ms", "--latency-model", tmp_path / "none.json"], "cannot be read"),
        (["--budget", "latency=2ms", "--latency-model", tmp_path / "d.json"], "is not one"),
        (["--budget", "latency:tensorrt=2ms"], "an engine must be one of"),
    ):
        found = run(*job, *words)
        assert found.exit_code == 2
        assert message in found.stderr
        assert not (tmp_path / "run").exists()
    alone = run(*job, "--latency-model", tmp_path / "d.json")
    assert (alone.exit_code, "a search needs a budget" in alone.stderr) == (2, True)
    assert "give a MODEL, for instance" in run("calibrate").stderr
    assert "give the file to write" in run("calibrate", "resnet20").stderr
    assert (
        "an engine must be one of" in run("calibrate", "resnet20", "--engine", "x", "--out", tmp_path / "e.json").stderr
    )


def test_a_stopped_calibration_says_where_its_times_are(tmp_path, monkeypatch):
    def stopped(times, batch, threads):
        if (tmp_path / "device.json.unfinished").exists():
            raise KeyboardInterrupt
        return [TimedNetwork(widths, 1e6 + sum(widths)) for widths in batch]

    monkeypatch.setattr(latency_calibration, "GOOD", -1.0)
    monkeypatch.setattr("bcnet.latency.measurement.measure_networks", stopped)
    found = CliRunner().invoke(app, ["calibrate", "resnet_digits", "--out", str(tmp_path / "device.json")])
    assert found.exit_code == 130
    assert "device.json.unfinished. Run the same command to resume." in found.stderr.replace("\n", "")
    assert not (tmp_path / "device.json").exists()


@pytest.mark.slow
def test_the_commands_calibrate_search_and_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(latency_calibration, "GOOD", np.inf)  # as many networks as it takes, not as exactly as it goes

    def run(*words):
        found = CliRunner().invoke(app, [str(word) for word in words])
        assert found.exit_code == 0, found.output
        return found.output

    device = tmp_path / "device.json"
    assert "median error" in run("calibrate", "resnet_digits", "--engine", "onnxruntime", "--out", device)
    job = ["--model", "resnet_digits", "--data", "digits", "--epochs", 1, "--threads", 1, "--log", "lines"]
    small = ["--set", "batch_size=256", "--method", "bcnet:epochs=1,population=8,generations=2,parents=2"]
    # Of channels that are no multiple of 4 it is slow: the narrowest network here takes half of the original's time.
    limit = ["--budget", "latency:onnxruntime=0.9", "--latency-model", device]
    assert "Latency as measured" in run("search", *job, *small, *limit, "--out", tmp_path / "run")
    assert "0.9x of latency:onnxruntime" in run("status", tmp_path / "run")
    preview = run("search", *job, *small, "--budget", "latency=0.6", "--out", tmp_path / "new", "--dry-run")
    assert "groups" in preview


def test_a_damaged_model_ends_with_one_message(tmp_path, machine):
    tiny_search(tmp_path, budget=Budget(latency=0.6))
    (tmp_path / "latency_model.json").write_text('{"model": 3}')
    with pytest.raises(RunError, match=r"latency_model.json"):
        tiny_search(tmp_path, budget=Budget(latency=0.6))
    with pytest.raises(RunError, match=r"latency_model.json"):
        _ = bcnet.Run.open(tmp_path).budget


def limited(world, folder):
    """A search under a latency, of a machine by the truth."""
    space = WidthSpace.trace(TinyNetwork(), torch.zeros(2, 1, 8, 8), num_choices=4)
    plain = measurement.measure_networks
    measurement.measure_networks = lambda times, batch, threads: [
        TimedNetwork(w, float(truth(space, [w])[0]), 0.0) for w in batch
    ]
    try:
        outcome = tiny_search(folder, budget=Budget(latency=0.6))
    finally:
        measurement.measure_networks = plain
    return outcome.widths, outcome.result.measured_latency


@pytest.mark.slow
def test_one_of_several_processes_measures_for_all(processes, tmp_path):
    first, second = processes.run(2, limited, tmp_path)
    assert first == second
    widths, measured = first
    assert measured["searched"] <= 0.6 * measured["original"]
    assert len(widths) > 0
