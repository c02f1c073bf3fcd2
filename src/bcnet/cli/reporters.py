"""Progress for people: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bcnet.pipeline import Reporter
from bcnet.pipeline.progress import Advance

_PLAIN_SECONDS = 10.0  # between the first lines of a stage
_PLAIN_SHARE = 0.05  # of the stage's time so far, between later ones
_PLAIN_LONGEST = 600.0


def make_reporter(console: Console) -> Reporter:
    """Bars where the console is a terminal, lines where it is not."""
    return BarReporter(console) if console.is_terminal else LineReporter(console)


class BarReporter(Reporter):
    """A bar with elapsed and remaining time for each stage."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Show a bar while the stage lasts."""
        columns = (
            TextColumn(f"[bold]{name:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}", style="dim"),
        )
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task("", total=total)

            def advance(done: int, detail: str) -> None:
                progress.update(task, completed=done, description=detail)

            yield advance

    def note(self, text: str) -> None:
        """Print the note."""
        self._console.print(text, style="dim", highlight=False)


class LineReporter(Reporter):
    """A line when a stage starts, when it ends, and between: at first every ten seconds, then ever more rarely.

    The pause grows with the time so far, up to ten minutes: about 40 lines in ten minutes, 80 in an hour, 230 in a day.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Print lines while the stage lasts."""
        start = last = time.monotonic()
        first: int | None = None
        self.note(f"{name}: {total:,} {unit}")

        def advance(done: int, detail: str) -> None:
            nonlocal last, first
            now = time.monotonic()
            first = done - 1 if first is None else first
            pause = min(max(_PLAIN_SECONDS, _PLAIN_SHARE * (last - start)), _PLAIN_LONGEST)
            if now - last >= pause and done < total:
                left = (now - start) / (done - first) * (total - done)
                self.note(f"{name}: {done:,} of {total:,} {unit}, {_clock(left)} left, {detail}")
                last = now

        yield advance
        self.note(f"{name}: done in {time.monotonic() - start:.1f} s")

    def note(self, text: str) -> None:
        """Print the note."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
