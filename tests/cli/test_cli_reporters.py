import io

import pytest
from rich.console import Console

from bcnet.cli import reporters
from bcnet.cli.reporters import BarReporter, LineReporter, make_reporter


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
    assert lines[1].startswith("supernet: 501 of 1,000 steps, 0:00:0")
    assert lines[1].endswith("left, loss [1.0]")
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
