"""Progress for people: bars in a terminal or notebook, plain lines elsewhere."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from bcnet.display import stage_title
from bcnet.progress.base import Advance, Reporter
from bcnet.progress.forecast import Forecast, Planned

_PLAIN_SECONDS = 10.0  # between the first lines of a stage
_PLAIN_SHARE = 0.05  # between later ones, as a share of the stage's time so far
_PLAIN_LONGEST = 600.0


def console_reporter(console: Console | None = None) -> Reporter:
    """Return a reporter with bars in a terminal, or in a notebook with ipywidgets; with lines elsewhere."""
    console = console or Console()
    if console.is_jupyter and importlib.util.find_spec("ipywidgets") is None:
        return LineReporter(Console(force_jupyter=False))
    return BarReporter(console) if console.is_terminal or console.is_jupyter else LineReporter(console)


class BarReporter(Reporter):
    """A bar for each stage and one for the whole run, with elapsed and remaining time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._forecast = Forecast()
        self._start = time.monotonic()

    def plan(self, stages: Sequence[Planned]) -> None:
        """Set the planned stages."""
        self._forecast.plan(stages)

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Show the bars during the stage; the stage's own bar stays."""
        self._forecast.begin(name, total, unit)
        with self._progress() as progress:
            task = self._add(progress, stage_title(name), total, f"0/{total:,} {unit}", time.monotonic())
            run = self._add(progress, "whole run", None, "", self._start)

            def advance(done: int, detail: str) -> None:
                self._forecast.advance(done)
                left = clock(self._forecast.stage_left)
                progress.update(task, completed=done, left=left, count=f"{done:,}/{total:,} {unit}", detail=detail)
                self._show_run(progress, run)

            yield advance
            self._forecast.end()
            progress.update(task, left="0:00:00")
            progress.remove_task(run)

    def _progress(self) -> Progress:
        columns = (
            TextColumn("[bold]{task.description:<10}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            _Elapsed(),
            TextColumn("left {task.fields[left]}"),
            TextColumn("{task.fields[detail]}", style="dim", markup=False),
        )
        return Progress(*columns, console=self._console)

    def _add(self, progress: Progress, name: str, total: int | None, count: str, began: float) -> TaskID:
        return progress.add_task(name, total=total, count=count, began=began, left="?", detail="")

    def _show_run(self, progress: Progress, task: TaskID) -> None:
        left = self._forecast.run_left
        if left is None:
            return
        elapsed = time.monotonic() - self._start
        total = max(elapsed + left, 1e-9)
        share = f"{100 * elapsed / total:.0f} %"
        progress.update(task, completed=elapsed, total=total, left=clock(left), count=share)

    def note(self, text: str) -> None:
        """Print the remark."""
        self._console.print(text, style="dim", highlight=False, markup=False)


class _Elapsed(ProgressColumn):
    """Time since a task's field `began`."""

    def render(self, task: Task) -> Text:
        """Return the time as text."""
        return Text(clock(time.monotonic() - task.fields["began"]))


class LineReporter(Reporter):
    """A line when a stage starts and ends, and in between at first every ten seconds, then less often.

    The pause grows with the elapsed time, up to ten minutes: about 40 lines in ten minutes, 80 in an hour, 230 in a
    day.

    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._forecast = Forecast()

    def plan(self, stages: Sequence[Planned]) -> None:
        """Set the planned stages."""
        self._forecast.plan(stages)

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Print lines during the stage."""
        start = last = time.monotonic()
        self._forecast.begin(name, total, unit)
        shown = stage_title(name)
        self.note(f"{shown}: {total:,} {unit}")

        def advance(done: int, detail: str) -> None:
            nonlocal last
            self._forecast.advance(done)
            now = time.monotonic()
            pause = min(max(_PLAIN_SECONDS, _PLAIN_SHARE * (last - start)), _PLAIN_LONGEST)
            if now - last >= pause and done < total:
                self.note(f"{shown}: {done:,} of {total:,} {unit}, {self._time_left()}, {detail}")
                last = now

        yield advance
        self._forecast.end()
        self.note(f"{shown}: done in {time.monotonic() - start:.1f} s")

    def _time_left(self) -> str:
        stage = f"{clock(self._forecast.stage_left)} left"
        return f"{stage} (whole run {clock(self._forecast.run_left)})" if self._forecast.has_plan else stage

    def note(self, text: str) -> None:
        """Print the remark."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def clock(seconds: float | None) -> str:
    """Format seconds as hours, minutes and seconds; "?" if unknown."""
    return "?" if seconds is None else str(timedelta(seconds=round(seconds)))
