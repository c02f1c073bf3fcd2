import io
import json

import pytest
from rich.console import Console

from bcnet.cli.carry_out import make_reporter
from bcnet.errors import BCNetError
from bcnet.progress import terminal as reporters
from bcnet.progress.forecast import Forecast, Planned
from bcnet.progress.terminal import BarReporter, LineReporter, console_reporter


def shown(terminal: bool) -> tuple[io.StringIO, Console]:
    text = io.StringIO()
    return text, Console(file=text, force_terminal=terminal, width=120)


def test_a_terminal_gets_bars_with_the_time_left():
    text, console = shown(terminal=True)
    reporter = make_reporter(console)
    assert isinstance(reporter, BarReporter)
    with reporter.stage("supernet", 10, "steps") as advance:
        advance(5, "loss 1.0")
        advance(10, "loss 0.5")
    reporter.note("a note")
    for part in ("supernet", "10/10", "left", "loss 0.5", "a note"):
        assert part in text.getvalue()


def test_elsewhere_there_are_plain_lines(monkeypatch):
    monkeypatch.setattr(reporters, "_PLAIN_SECONDS", 0.0)
    text, console = shown(terminal=False)
    reporter = make_reporter(console)
    assert isinstance(reporter, LineReporter)
    with reporter.stage("supernet", 1000, "steps") as advance:
        advance(501, "loss [1.0]")  # resumed in the middle
        advance(1000, "loss 0.5")
    lines = text.getvalue().splitlines()
    assert lines[0] == "supernet: 1,000 steps"
    assert lines[1] == "supernet: 501 of 1,000 steps, ? left, loss [1.0]"  # nothing measured yet
    assert lines[2].startswith("supernet: done in ")


@pytest.mark.parametrize(("minutes", "most"), [(1, 6), (60, 80), (24 * 60, 240)])
def test_a_long_stage_keeps_its_log_short(monkeypatch, minutes, most):
    now = [0.0]
    monkeypatch.setattr(reporters.time, "monotonic", lambda: now[0])
    text, console = shown(terminal=False)
    with LineReporter(console).stage("supernet", 60 * minutes, "steps") as advance:
        for second in range(60 * minutes):
            now[0] = float(second)
            advance(second, "")
    lines = len(text.getvalue().splitlines()) - 2
    assert 0.8 * most <= lines <= most


def test_the_whole_run_has_a_time_left_once_there_is_a_speed(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(reporters.time, "monotonic", lambda: now[0])
    text, console = shown(terminal=False)
    reporter = LineReporter(console)
    reporter._forecast = Forecast(lambda: now[0])
    reporter.plan([Planned("supernet", 100, "steps", 2.0), Planned("searched", 100, "steps", 1.0)])
    with reporter.stage("supernet", 100, "steps") as advance:
        for done in range(1, 21):
            now[0] += 1.0
            advance(done, "fine")
    assert "supernet: 10 of 100 steps, 0:01:30 left (whole run 0:02:20), fine" in text.getvalue()


def test_bars_show_the_whole_run_below_the_stage():
    text, console = shown(terminal=True)
    reporter = BarReporter(console)
    reporter.plan([Planned("supernet", 10, "steps", 2.0)])
    with reporter.stage("supernet", 10, "steps") as advance:
        advance(1, "loss 1.0")
    assert "whole run" in text.getvalue()


@pytest.mark.parametrize("log", ["lines", "bars", "quiet"])
def test_a_log_can_be_asked_for(log):
    text, console = shown(terminal=False)
    reporter = make_reporter(console, log)
    with reporter.stage("supernet", 10, "steps") as advance:
        advance(10, "")
    assert bool(text.getvalue()) == (log != "quiet")


def test_an_unknown_log_is_refused():
    with pytest.raises(BCNetError, match="--log must be one of auto, bars, lines, json, quiet; got 'loud'"):
        make_reporter(shown(terminal=False)[1], "loud")


def test_machines_get_an_object_a_line():
    text, console = shown(terminal=False)
    reporter = make_reporter(console, "json")
    reporter.plan([Planned("supernet", 10, "steps", 2.0, finished=True)])
    with reporter.stage("prior", 2, "problems") as advance:
        reporter.figures("prior", 1, {"loss": 0.5})
        advance(1, "not for machines")
        advance(1, "too soon")
        advance(2, "")
    reporter.note("a note")
    events = [json.loads(line) for line in text.getvalue().splitlines()]
    assert [event["event"] for event in events] == ["plan", "start", "progress", "progress", "end", "note"]
    assert all(event.pop("time") > 0 for event in events)
    plan, start, progress, _, end, note = events
    assert plan["stages"] == [{"stage": "supernet", "total": 10, "unit": "steps", "finished": True}]
    assert start == {"event": "start", "stage": "prior", "total": 2, "unit": "problems"}
    assert (progress["done"], progress["total"], progress["figures"]) == (1, 2, {"step": 1, "loss": 0.5})
    assert progress["stage_seconds_left"] is None
    assert (end["stage"], note["text"]) == ("prior", "a note")


@pytest.mark.parametrize(("spec", "kind"), [(None, LineReporter), (object(), BarReporter)])
def test_a_notebook_has_bars_where_it_can_draw_them(spec, kind, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    assert type(console_reporter(Console(force_jupyter=True))) is kind
