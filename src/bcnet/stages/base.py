"""Stages: the base class, and the parts that all stages share.

A stage has a name, says which settings its outcome depends on and which stages it needs, how much work it is, and what
files it leaves: `run` makes them, `load` reads them. What is finished is never run again, whatever happened meanwhile.
A stage of your own is a subclass, given as `bcnet.search(..., stages=[Mine()])`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from bcnet.distributed import ProcessGroup
from bcnet.errors import RunError
from bcnet.files.tensors import read_tensors, write_tensors
from bcnet.progress.base import Advance, Reporter
from bcnet.progress.forecast import Planned
from bcnet.run.directory import RunDirectory, read_settings
from bcnet.run.settings import ALL, Settings
from bcnet.run.workload import Workload, open_source, prepare, refuse_to_import
from bcnet.tasks import task_described
from bcnet.train import CHECKPOINT_SECONDS, Checkpoints, Progress

_T = TypeVar("_T")
TRAINING = ("training.", "teacher", "start", "options.training_seed")
"""Settings that every network trained by itself depends on."""
TRAINING_PASS = 3  # forward passes: a backward pass is two of them


@dataclass(frozen=True)
class Context:
    """The context of every stage. All processes of `world` go through all stages; `reporter` is silent on all but one.

    `stages` are those of the run, in order. Training is saved every `checkpoint_seconds`, for the result it makes no
    difference.
    """

    settings: Settings
    workload: Workload
    directory: RunDirectory
    reporter: Reporter
    world: ProcessGroup
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    stages: tuple[Stage, ...] = ()
    _outputs: dict[str, Any] = field(init=False, default_factory=dict, repr=False, compare=False)
    _kept: dict[Any, Any] = field(init=False, default_factory=dict, repr=False, compare=False)

    @classmethod
    def of_run(cls, run: str | Path, **changes: Any) -> Context:
        """Return what the stages of a run of model and data by name are given, with `changes` of its settings.

        For trying a stage, or a score, on what a run has made; the run directory is not locked.

        Raises:
            RunError: it is no run directory, its settings are damaged, or it was given something of the user's own.
            ModelError: the model's name imports code.
        """
        stored = read_settings(Path(run))
        refuse_to_import(stored.model, Path(run))
        task = task_described(stored.task)
        source = open_source(
            stored.model, stored.data, image_size=stored.options.image_size, seed=stored.seed, task=task
        )
        settings = stored.model_copy(update=changes)
        return cls(settings, prepare(source, stored), RunDirectory(Path(run), settings), Reporter(), ProcessGroup())

    def output(self, name: str) -> Any:
        """Return what the stage of this name came to: run now, unless it has been."""
        if name not in self._outputs:
            stage = next((stage for stage in self.stages if stage.name == name), None)
            if stage is None:
                raise RunError(f"a run of these settings has no stage {name}; it has {', '.join(self.names)}")
            self._outputs[name] = stage.output(self)
        return self._outputs[name]

    def look_again(self, name: str) -> Any:
        """Return what the stage of this name came to, of files that have changed since."""
        self._outputs.pop(name, None)
        return self.output(name)

    def once(self, key: Any, make: Callable[[], _T]) -> _T:
        """Return what `make` gives, made once in this process and kept."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: _T = self._kept[key]
        return kept

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the run's stages, in order."""
        return tuple(stage.name for stage in self.stages)

    def checkpoints(self, stage: str) -> Checkpoints:
        """Return where and how often a training stage saves its state."""
        return self.directory.checkpoints(stage, self.checkpoint_seconds)

    def check_processes(self, stage: str) -> None:
        """Raise RunError unless as many processes are here to train as the settings say; a search takes any number."""
        processes = self.settings.options.processes
        if self.world.size != processes:
            raise RunError(
                f"stage {stage} of this run is trained by {processes} processes, since batch norm and "
                f"the rounding of sums depend on it; got {self.world.size}: start as many with torchrun"
            )

    @contextmanager
    def work(self, stage: str, total: int, unit: str, *, timed_as: str = "") -> Iterator[Advance]:
        """Time and tell of a stage's work; the value is called with the units done and a few words."""
        with self.directory.time_stage(timed_as or stage), self.reporter.stage(stage, total, unit) as advance:
            yield advance

    def step_reporter(self, stage: str, advance: Advance) -> Callable[[Progress], None]:
        """Tells of the steps of a training."""

        def report(progress: Progress) -> None:
            self.reporter.figures(stage, progress.step, {"loss": progress.loss, "learning rate": progress.lr})
            skipped = f", {progress.skipped} bad steps left out" if progress.skipped else ""
            advance(progress.step, f"epoch {progress.epoch}/{progress.epochs}, loss {progress.loss:.3f}{skipped}")

        return report


class Stage(ABC):
    """One stage of a run. Subclass it, set the class attributes, and implement `run` and `load`.

    `name` is the word for it in progress, times and files, `file` the one that is there once it is finished: written
    last. `needs` names stages that come before it. `kind` groups stages that work at one speed.

    Example: the accuracy of the searched network on the validation images,

        class Checked(bcnet.Stage):
            name, file, needs = "checked", "checked.json", ("searched",)

            def run(self, context):
                network = context.output("searched").network
                context.directory.write(self.file, {"score": score_of(network, context.workload.validation)})

            def load(self, context):
                return context.directory.read(self.file)["score"]
    """

    name: ClassVar[str]
    file: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str] = "other"

    @abstractmethod
    def run(self, context: Context) -> None:
        """Do the work, and leave the stage's files in `context.directory`, `file` last."""

    @abstractmethod
    def load(self, context: Context) -> Any:
        """Return what the stage came to, read from its files."""

    def output(self, context: Context) -> Any:
        """Return what the stage came to; it is run where it is not finished."""
        if not context.directory.has(self.file):
            for needed in self.needs:
                if needed in context.names:  # other settings, other stages before it
                    context.output(needed)
            self.run(context)
        return self.load(context)

    def applies(self, settings: Settings) -> bool:
        """Return whether a run of these settings has the stage."""
        return True

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """Return the settings that the outcome depends on, as beginnings of their dotted names.

        A stage of another run that agrees in these, and by `agrees`, is this run's, bit for bit
        (`bcnet.stages.reuse`): model, data, seed, space and machine it has to agree in as well. By default they are
        all settings.
        """
        return ALL

    def plan(self, settings: Settings, workload: Workload) -> Planned | None:
        """Return how much work it is; None for a stage that people need not hear of."""
        return Planned(self.name, 1, "stage", kind=self.kind, file=self.file)

    @property
    def timed_as(self) -> tuple[str, ...]:
        """The names under which its time is kept."""
        return (self.name,)

    def is_in(self, directory: RunDirectory) -> bool:
        """Return whether there is anything of it in a directory to reuse, or reused already."""
        return directory.file(self.file).exists()

    def agrees(self, theirs: RunDirectory, context: Context) -> bool:
        """Return whether another run's stage, which agrees in all settings that it `reads`, does in all else."""
        return True

    def reuse(self, theirs: RunDirectory, context: Context) -> None:
        """Copy the stage's files from another run, written anew with the marks of this one."""
        context.directory.write(self.file, theirs.read(self.file))


def copy_tensors(theirs: RunDirectory, ours: RunDirectory, files: Mapping[str, str]) -> None:
    """Copy tensor files, name -> what they are marked with, in this order."""
    for name, mark in files.items():
        tensors, state = read_tensors(theirs.file(f"{name}.safetensors"), theirs.identity(mark))
        write_tensors(ours.file(f"{name}.safetensors"), tensors, ours.identity(mark), state)


def in_order(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages, each after all that it needs, else as they are listed.

    Raises:
        RunError: two of one name, or stages that need each other.
    """
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise RunError(f"stages of a run have different names; got two of the name {name!r}: rename yours")
    waiting = list(stages)
    ordered = list[Stage]()
    while waiting:
        done = {stage.name for stage in ordered}
        ready = next((s for s in waiting if all(n in done or n not in names for n in s.needs)), None)
        if ready is None:
            raise RunError(f"stages need each other in a circle: {', '.join(stage.name for stage in waiting)}")
        waiting.remove(ready)
        ordered.append(ready)
    return tuple(ordered)
