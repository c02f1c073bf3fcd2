"""Status of a run: its stages, its best candidate, and its expected end. Reading does not disturb the run.

Everything readable is reported; the rest is listed as problems.
"""

from __future__ import annotations

import dataclasses
import fcntl
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from bcnet.display import score_text, stage_title
from bcnet.errors import RunError
from bcnet.files.documents import read_document
from bcnet.files.untrusted import check_contained
from bcnet.progress.record import Record, StageRecord, read_record
from bcnet.run import names
from bcnet.run.evaluations import Best, summarise_evaluations
from bcnet.run.result import RunResult
from bcnet.run.subject import Subject, subject_of

State = Literal["running", "finished", "in part", "stopped", "failed", "damaged", "empty"]
_IN_TURN = ("finished", "at hand", "ahead")
_SETTINGS = ("model", "data", "limits", "seed")
_GOING_ON = {
    "stopped": ": the same command resumes it",
    "failed": ": the same command resumes it",
    "in part": ": everything requested is done; the run can be continued",
}


@dataclass(frozen=True)
class StageStatus:
    """Progress of one stage: "finished", "at hand" (running) or "ahead"."""

    record: StageRecord
    state: Literal["finished", "at hand", "ahead"]


@dataclass(frozen=True)
class Status:
    """State of a run. Times are seconds since 1970, accuracies percent; higher scores are better.

    `state`: "running" while a process holds the directory; "finished" with a result; "in part" if everything requested
    is done but that was not a whole search; "failed" with the reason in `message`; "stopped" if it can be resumed.
    `since` is when the state began. `ends` is the expected end of a running run, or None. `evaluations` is None before
    the search. `limits` are those of the budget in absolute counts, as far as the original's costs are known.

    """

    folder: str
    state: State
    since: float | None = None
    pid: int | None = None
    host: str | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    stages: tuple[StageStatus, ...] = ()
    stage_left: float | None = None
    ends: float | None = None
    evaluations: int | None = None
    best: Best | None = None
    best_ratio: float | None = None
    limits: dict[str, float] = dataclasses.field(default_factory=dict)
    original_macs: int | None = None
    result: dict[str, Any] | None = None
    message: str = ""
    problems: tuple[str, ...] = ()


def read_status(folder: str | Path) -> Status:
    """Return the status of the run in `folder`: running, stopped, killed, finished, corrupt or not started.

    Raises:
        RunError: there is no such folder, or it holds something else.
    """
    path = Path(folder)
    if not path.is_dir():
        raise RunError(f"a run directory must be a folder; {path} is {'a file' if path.exists() else 'not there'}")
    if not (path / names.SETTINGS).exists():
        others = [p.name for p in path.iterdir() if p.name != "lock" and not p.name.endswith(".tmp")]
        if others:
            raise RunError(
                f"{path} is not a run directory: it has no settings.json; give the --out of a `bcnet search`"
            )
        return Status(str(path), "empty")
    check_contained(path)
    try:
        return _Reader(path).status()
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise RunError(
            f"{path} holds documents of another version ({type(error).__name__}: {error}): look at it with that version"
        ) from None


class _Reader:
    """Reads the files of one directory and collects problems."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self.record = read_record(path)
        self.settings = self._document(names.SETTINGS) or {}
        self.subject = self._subject()
        self.result = self._result()

    def status(self) -> Status:
        """Return the status from all readable files."""
        state = self._state()
        record = self.record if self.record is not None else Record("stopped", 0, "", 0.0, 0.0)
        running = state == "running"
        limits = self._limits()
        count, best, ratio = self._find_best(limits)
        began = record.started if running else record.updated
        return Status(
            folder=str(self.path),
            state=state,
            since=began or (self.path / names.SETTINGS).stat().st_mtime,
            pid=(_owner(self.path) or record.pid) if running else None,
            host=record.host or None,
            settings={key: self.settings[key] for key in _SETTINGS if key in self.settings} | _method_of(self.settings),
            stages=self._stages(record, running),
            stage_left=record.stage_left if running else None,
            ends=record.updated + record.run_left if running and record.run_left is not None else None,
            evaluations=count,
            best=best,
            best_ratio=ratio,
            limits=limits,
            original_macs=None if self.subject is None else self.subject.macs,
            result=_headline(self.result) if state == "finished" and self.result is not None else None,
            message=record.message if state == "failed" else "",
            problems=tuple(self.problems),
        )

    def _state(self) -> State:
        if _is_held(self.path):
            return "running"
        if not self.settings or any(names.RESULT in problem for problem in self.problems):
            return "damaged"
        if self.result is not None:
            return "finished"
        if self.record is None or self.record.state == "running":
            return "stopped"
        return "in part" if self.record.state == "finished" else self.record.state

    def _stages(self, record: Record, running: bool) -> tuple[StageStatus, ...]:
        """Return the stages, finished ones first, since a needed stage runs before the stage that needs it."""
        stages = []
        for stage in record.stages:
            done = (self.path / stage.file).exists() if stage.file else stage.done >= stage.total
            here = running and stage.name == record.stage
            if here:
                stages.append(StageStatus(stage, "at hand"))
            else:
                stages.append(StageStatus(stage, "finished" if done else "ahead"))
        return tuple(sorted(stages, key=lambda stage: _IN_TURN.index(stage.state)))

    def _limits(self) -> dict[str, float]:
        """Return the limits of the budget as counts, as far as they are known."""
        subject = self.subject
        costs = {} if subject is None else {"macs": subject.macs, "params": subject.params, **subject.others}
        given = {re.split("[ :]", name)[0]: limit for name, limit in self.settings.get("limits", {}).items()}
        limits = {name: _resolve_limit(limit, costs.get(name)) for name, limit in given.items()}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def _find_best(self, limits: dict[str, float]) -> tuple[int | None, Best | None, float | None]:
        file = self.path / names.EVALUATIONS
        if not file.exists():
            return None, None, None
        try:
            count, best = summarise_evaluations(file, limits)
        except RunError as error:
            self.problems.append(str(error))
            return None, None, None
        macs = 0 if self.subject is None else self.subject.macs
        return count, best, best.macs / macs if best is not None and macs else None

    def _result(self) -> RunResult | None:
        document = self._document(names.RESULT)
        try:
            return None if document is None else RunResult.model_validate(document)
        except ValidationError:
            self.problems.append(f"{self.path / names.RESULT} is no result of this version")
            return None

    def _subject(self) -> Subject | None:
        document = self._document(names.SPACE)
        try:
            return None if document is None else subject_of(document, self.path)
        except RunError as error:
            self.problems.append(str(error))
            return None

    def _document(self, name: str) -> dict[str, Any] | None:
        file = self.path / name
        if not file.exists():
            return None
        try:
            return read_document(file)
        except RunError as error:
            self.problems.append(str(error))
            return None


def _method_of(settings: dict[str, Any]) -> dict[str, Any]:
    method = settings.get("method", {})
    score = {"score": method["score"]} if "score" in method else {}
    return {"method": method.get("name"), **score}


def _resolve_limit(given: int | float | None, reference: float | None) -> float | None:
    """Return the limit as a count, like `Budget.resolve`."""
    if isinstance(given, float):
        return None if reference is None else max(1, math.floor(given * reference))
    return given


def _headline(result: RunResult) -> dict[str, Any]:
    """Return costs and test results of the networks; `headline` is for people: "91.52 % test top-1"."""
    metric = result.headline
    keys = {"macs", "macs_ratio", "params", "test"}
    return {
        name: figures.model_dump(mode="json", include=keys)
        | {"headline": f"{metric.text(result.value(name))} {metric.name}"}
        for name, figures in result.networks.items()
    }


def _is_held(path: Path) -> bool:
    """Return whether a process holds the directory's lock, which is released when the process ends."""
    try:
        with open(path / "lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _owner(path: Path) -> int | None:
    try:
        return int((path / "lock").read_text(encoding="utf-8").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def as_document(status: Status) -> dict[str, Any]:
    """Return the status as plain data with the time of reading."""
    document = dataclasses.asdict(status)
    document["stages"] = [{**dataclasses.asdict(stage.record), "state": stage.state} for stage in status.stages]
    return {"format": 1, "read": time.time(), **document}


def status_lines(found: Status) -> Iterator[str]:
    """Yield the status as lines of text."""
    yield _state_line(found)
    if found.settings:
        s = found.settings
        yield f"{s.get('model')} on {s.get('data')}, budget {_budget(found)}, seed {s.get('seed')}"
    for stage in found.stages:
        yield f"  {_stage(stage, found)}"
    if found.evaluations is not None:
        yield _describe_best(found)
    if found.result:
        yield "Test: " + ", ".join(
            f"{name} {figures['headline']} at {figures['macs_ratio']:.3f} of the MACs"
            for name, figures in found.result.items()
        )
    if found.state == "running":
        yield f"Ends {_format_end(found.ends)}."
    if found.message:
        yield f"Error: {found.message}"
    yield from (f"Problem: {problem}" for problem in found.problems)


def _state_line(found: Status) -> str:
    if found.state == "empty":
        return f"{found.folder}: nothing has been started here"
    place = f" on {found.host}" if found.host else ""
    who = f" (process {found.pid}{place})" if found.pid else ""
    since = "" if found.since is None else f" since {datetime.fromtimestamp(found.since):%Y-%m-%d %H:%M:%S}"
    return f"{found.folder}: {found.state}{who}{since}{_GOING_ON.get(found.state, '')}"


def _budget(found: Status) -> str:
    units = {"macs": "MACs", "params": "parameters"}
    given = [(units.get(key, f"of {key}"), limit) for key, limit in found.settings.get("limits", {}).items()]
    return " and ".join(f"{v:g}x {unit}" if isinstance(v, float) else f"{v:,} {unit}" for unit, v in given)


def _stage(stage: StageStatus, found: Status) -> str:
    name = f"{stage_title(stage.record.name):<{_longest_title(found)}}"
    record = stage.record
    if stage.state != "at hand":
        begun = f"{record.done:,} of {record.total:,} {record.unit}" if record.done else "to come"
        return f"{name} {'finished' if stage.state == 'finished' else begun}"
    share = f" ({100 * record.done / record.total:.0f} %)" if record.total else ""
    left = "?" if found.stage_left is None else timedelta(seconds=round(found.stage_left))
    detail = f", {record.detail}" if record.detail else ""
    return f"{name} {record.done:,} of {record.total:,} {record.unit}{share}, {left} left{detail}"


def _longest_title(found: Status) -> int:
    return max(len(stage_title(stage.record.name)) for stage in found.stages)


def _describe_best(found: Status) -> str:
    if found.best is None:
        return f"Found so far: {found.evaluations:,} candidates, none within the budget yet"
    metric = {"loss": "loss", "custom": "own"}.get(str(found.settings.get("score")), "accuracy")
    score = score_text(found.best.score, metric)
    ratio = "" if found.best_ratio is None else f" ({found.best_ratio:.3f} of the original)"
    widths = ",".join(map(str, found.best.widths))
    return (
        f"Found so far: {found.evaluations:,} candidates, the best {score} at {found.best.macs:,} MACs"
        f"{ratio}, {found.best.params:,} parameters: {widths}"
    )


def _format_end(ends: float | None) -> str:
    if ends is None:
        return "? (too little measured yet)"
    left = timedelta(seconds=round(max(0.0, ends - time.time())))
    return f"in about {left}, at {datetime.fromtimestamp(ends):%Y-%m-%d %H:%M:%S}"
