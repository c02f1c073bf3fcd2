"""Kills `bcnet search` at random moments of every stage, goes on with the same command, and compares the end.

    python -m tests.robustness.chaos              # until 100 kills are in results/chaos.csv, about a quarter of an hour
    python -m tests.robustness.chaos --quick      # three kills, nothing written

A run is killed again and again until one process gets to the end; then its weights, evaluations and documents must have
the same bytes as those of a run that nobody disturbed (times aside). A moment is a stage and either a time in it or the
n-th file event in it, so that writes are hit: SIGKILL comes within a fraction of a millisecond after the event. A row
per kill: where and when it fell, how the process ended, and whether its run came to the same end.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from studies.shared.provenance import ROOT, append_row, provenance, rows
from tests.robustness.file_events import FileEvents

OUTPUT = ROOT / "results" / "chaos.csv"
SETTINGS = {
    "--model": "resnet_digits",
    "--data": "digits",
    "--budget": "0.5",
    "--epochs": "2",
    "--method": "bcnet:population=6,generations=3,parents=3",
    "--num-choices": "4",
    "--threads": "1",
    "--checkpoint-seconds": "0",
}
STAGES = (
    *("start", "supernet", "prior", "evolution", "reliability"),
    *("rescore", "original", "Uniform", "searched", "report"),
)
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_DOCUMENTS = (
    "settings.json",
    "space.json",
    "prior.json",
    "reliability.json",
    "rescored.json",
    "architecture.json",
    "ratios.svg",
)
_AFTER = {"reliability": "rescore", "searched": "report"}  # what follows the line that says that a stage is done
_LONGEST = 300.0  # seconds; a process that takes longer hangs


@dataclass(frozen=True)
class Moment:
    """When to kill: some seconds, or some file events, after a stage began."""

    stage: str
    seconds: float | None
    events: int | None
    sent: signal.Signals

    def __str__(self) -> str:
        return f"{self.stage} + " + (f"{self.seconds:.3f} s" if self.events is None else f"{self.events} file events")


@dataclass
class Process:
    """One start of the command: the stage it is in, and what it leaves when it ends."""

    folder: Path
    began: dict[str, float] = field(default_factory=dict)  # stage -> seconds after the start
    ended: dict[str, float] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)  # stage -> file events
    code: int = 0
    errors: str = ""
    killed_at: float | None = None
    killed_in: str = ""

    def run(self, moment: Moment | None = None) -> Process:
        """Start, kill where `moment` says so, and wait for the end."""
        self.folder.mkdir(exist_ok=True)
        options = [text for pair in (SETTINGS | {"--out": str(self.folder)}).items() for text in pair]
        command = [sys.executable, "-W", "error", "-m", "bcnet", "search", *options]
        self._start, self._stage = time.monotonic(), "start"
        self.began["start"] = 0.0
        with (
            FileEvents(self.folder) as events,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        ):
            listeners = [threading.Thread(target=t, args=(process,)) for t in (self._listen, self._collect)]
            for listener in listeners:
                listener.start()
            while process.poll() is None:
                self._look(process, events, moment)
            for listener in listeners:
                listener.join()
        self.ended[self._stage] = self._now()
        self.code = process.returncode
        return self

    def _look(self, process: subprocess.Popen[str], events: FileEvents, moment: Moment | None) -> None:
        due = moment is not None and self.killed_at is None and STAGES.index(self._stage) >= STAGES.index(moment.stage)
        left = 0.02
        if due and moment is not None and moment.seconds is not None:
            left = self.began.get(moment.stage, 0.0) + moment.seconds - self._now()
        count = events.wait(min(max(left, 0.0), 0.02))
        stage = self._stage
        self.events[stage] = self.events.get(stage, 0) + count
        if due and moment is not None:
            enough = moment.events is not None and self.events.get(moment.stage, 0) >= moment.events
            # A stage that was over at once, or writes less than it did, is left: kill in what follows.
            passed = moment.events is not None and stage != moment.stage and count > 0
            if enough or passed or (moment.seconds is not None and left <= 0):
                process.send_signal(moment.sent)
                self.killed_at, self.killed_in = self._now(), stage
        if self._now() > _LONGEST:
            process.kill()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            found = re.match(r"(\w+): (.*)", line)
            if found and found[1] in STAGES:
                done = found[2].startswith("done in")
                if not done and self._stage != found[1]:
                    self._enter(found[1])
                elif done and found[1] in _AFTER:
                    self._enter(_AFTER[found[1]])

    def _collect(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.errors = process.stderr.read()

    def _enter(self, stage: str) -> None:
        self.ended[self._stage] = self.began[stage] = self._now()
        self._stage = stage

    def _now(self) -> float:
        return time.monotonic() - self._start


def traces(folder: Path) -> dict[str, str]:
    """A digest of everything a finished run leaves that must not depend on interruptions."""
    content = {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}
    content |= {name: (folder / name).read_bytes() for name in _DOCUMENTS}
    result = json.loads((folder / "result.json").read_bytes())
    content["result.json"] = json.dumps({k: v for k, v in result.items() if k not in ("seconds", "sha256")}).encode()
    with closing(sqlite3.connect(folder / "evaluations.sqlite")) as connection:
        rows = connection.execute("SELECT * FROM evaluations ORDER BY position").fetchall()
    content["evaluations.sqlite"] = json.dumps(rows).encode()
    return {name: hashlib.sha256(part).hexdigest() for name, part in content.items()}


def plan(reference: Process, reached: str, rng: random.Random) -> Moment:
    """A moment in the stage that was reached last or, every other time, in a later one."""
    index = STAGES.index(reached)
    while index < len(STAGES) - 1 and rng.random() < 0.5:
        index += 1
    stage = STAGES[index]
    sent = rng.choice(SIGNALS)
    seen = reference.events.get(stage, 0)
    if seen and rng.random() < 0.5:
        return Moment(stage, None, rng.randint(1, seen), sent)
    return Moment(stage, rng.uniform(0.0, reference.ended[stage] - reference.began[stage]), None, sent)


def one_run(folder: Path, reference: Process, expected: dict[str, str], most: int, rng: random.Random) -> list[dict]:
    """Kill a run up to `most` times, let it end, and compare: a row for each kill."""
    kills: list[dict[str, object]] = []
    reached = "start"
    while True:
        moment = plan(reference, reached, rng) if len(kills) < most else None
        process = Process(folder).run(moment)
        if "is damaged" in process.errors:
            raise AssertionError(f"a kill damaged a file: {process.errors}")
        if process.killed_at is None or process.code == 0:
            break
        reached = max(process.killed_in, reached, key=STAGES.index)
        kills.append(
            {
                "planned": str(moment),
                "stage": process.killed_in,
                "second": round(process.killed_at, 3),
                "signal": moment.sent.name if moment else "",
                "exit_code": process.code,
            }
        )
    if process.code != 0:
        raise AssertionError(f"the run did not go on: {process.errors}")
    found = traces(folder)
    different = sorted(name for name in {*expected, *found} if found.get(name) != expected.get(name))
    outcome = f"different: {' '.join(different)}" if different else "identical"
    return [row | {"outcome": outcome} for row in kills]


def done_so_far(seed: int) -> tuple[int, int]:
    """Kills in the file, and the number of the next run."""
    there = [row for row in rows(OUTPUT) if row["seed"] == str(seed)]
    return len(there), max((int(row["run"]) + 1 for row in there), default=0)


def main(
    kills: Annotated[int, typer.Option(help="How many.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the moments and signals.")] = 0,
    quick: Annotated[bool, typer.Option(help="Three kills, nothing written.")] = False,
) -> None:
    """Kill, go on, compare."""
    done, number = (0, 0) if quick else done_so_far(seed)
    with tempfile.TemporaryDirectory() as place:
        undisturbed = Process(Path(place) / "undisturbed").run()
        expected = traces(undisturbed.folder)
        wanted = 3 if quick else kills
        while done < wanted:
            rng = random.Random(f"{seed}/{number}")
            made = one_run(Path(place) / f"run{number}", undisturbed, expected, wanted - done, rng)
            for row in made:
                done += 1
                whole = {"seed": seed, "run": number, "kill": done, **row, **provenance()}
                print(whole, flush=True)
                if not quick:
                    append_row(OUTPUT, whole)
            number += 1


if __name__ == "__main__":
    typer.run(main)
