"""Base class of stages, and the parts that all stages share.

A stage has a name. It declares the settings that its output depends on, the stages it needs, its work, and its files:
`run` writes them, `load` reads them. A finished stage is never run again. To add one, pass an instance of a subclass to
`bcnet.search(..., stages=[Mine()])`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from torch import nn

from bcnet.distributed import ProcessGroup
from bcnet.errors import RunError
from bcnet.files.tensors import read_tensors, write_tensors
from bcnet.progress.base import Advance, Reporter
from bcnet.progress.forecast import Planned
from bcnet.run.directory import RunDirectory, read_settings
from bcnet.run.settings import ALL, Settings
from bcnet.run.workload import Workload, open_source, prepare, refuse_to_import
from bcnet.tasks import task_described
from bcnet.train import CHECKPOINT_SECONDS, Checkpoints, Progress, Recipe
from bcnet.train.optimizer import STATES

_KEPT = 3  # checkpoints on disk: the newest, the previous, and the one being written


def training_bytes(module: nn.Module, recipe: Recipe, records: int = 0, groups: int = 0) -> int:
    """Return the peak bytes written by a training: checkpoints, weights, `records` losses, widths of `groups`."""
    weights = sum(int(tensor.nbytes) for tensor in module.state_dict().values())
    state = STATES[recipe.optimizer] * sum(int(parameter.nbytes) for parameter in module.parameters())
    state += ((recipe.ema is not None) + (recipe.early_stopping is not None)) * weights
    losses = records * (8 + 4 + 4 * groups)
    return _KEPT * (weights + state + losses) + weights + losses


def search_bytes(candidates: int, groups: int) -> int:
    """Return the final bytes of the evaluation store.

    A row has widths as text, scores on parts of the images, digests and indices; SQLite keeps a journal.
    """
    return 2 * candidates * (704 + 8 * groups)


_T = TypeVar("_T")
TRAINING = ("training.", "teacher", "start", "options.training_seed")
"""Settings that the training of every network depends on."""
TRAINING_PASS = 3  # forward passes of a training step: a backward pass costs two


@dataclass(frozen=True)
class Context:
    """Context of every stage. All processes of `world` run all stages; `reporter` is silent on all but one.

    `stages` are those of the run, in order. Training is saved every `checkpoint_seconds`, which does not affect its
    result.

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
        """Return the context of a finished or unfinished run whose model and data are given by name.

        It serves to try a stage or a score on the files of a run, with `changes` of its settings. The run directory is
        not locked.

        Raises:
            RunError: not a run directory, its settings are corrupt, or the run uses the user's own objects.
            ModelError: the model's name would import code.
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
        """Return the output of the stage `name`, running it first if necessary."""
        if name not in self._outputs:
            stage = next((stage for stage in self.stages if stage.name == name), None)
            if stage is None:
                raise RunError(f"a run of these settings has no stage {name}; it has {', '.join(self.names)}")
            self._outputs[name] = stage.output(self)
        return self._outputs[name]

    def look_again(self, name: str) -> Any:
        """Return the output of the stage `name`, read again from its files."""
        self._outputs.pop(name, None)
        return self.output(name)

    def remember(self, key: Any, make: Callable[[], _T]) -> _T:
        """Return the result of `make`, computed once per process."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: _T = self._kept[key]
        return kept

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the run's stages in order."""
        return tuple(stage.name for stage in self.stages)

    def checkpoints(self, stage: str) -> Checkpoints:
        """Return where and how often a training stage saves its state."""
        return self.directory.checkpoints(stage, self.checkpoint_seconds)

    def check_processes(self, stage: str) -> None:
        """Raise RunError unless the number of processes is that of the settings; only a search accepts any number."""
        processes = self.settings.options.processes
        if self.world.size != processes:
            raise RunError(
                f"stage {stage} of this run must be trained by {processes} processes, since batch norm and "
                f"the rounding of sums depend on it; got {self.world.size}: start as many with torchrun"
            )

    @contextmanager
    def work(self, stage: str, total: int, unit: str, *, timed_as: str = "") -> Iterator[Advance]:
        """Time a stage's work and report its progress; call the value with the units done and a short text."""
        with self.directory.time_stage(timed_as or stage), self.reporter.stage(stage, total, unit) as advance:
            yield advance

    def step_reporter(self, stage: str, advance: Advance) -> Callable[[Progress], None]:
        """Return a callback that reports the steps of a training."""

        def report(progress: Progress) -> None:
            self.reporter.figures(stage, progress.step, {"loss": progress.loss, "learning rate": progress.lr})
            skipped = f", {progress.skipped} bad steps left out" if progress.skipped else ""
            advance(progress.step, f"epoch {progress.epoch}/{progress.epochs}, loss {progress.loss:.3f}{skipped}")

        return report


class Stage(ABC):
    """One stage of a run. Subclass it, set the class attributes, and implement `run` and `load`.

    `name` identifies the stage in progress reports, times and files. `file` is written last, so its presence means that
    the stage is finished. `needs` names the stages that come before it. `kind` groups stages that run at the same
    speed.

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
        """Do the work and write the stage's files to `context.directory`, `file` last."""

    @abstractmethod
    def load(self, context: Context) -> Any:
        """Return the stage's output, read from its files."""

    def output(self, context: Context) -> Any:
        """Return the stage's output, running the stage if it is not finished."""
        if not context.directory.has(self.file):
            for needed in self.needs:
                if needed in context.names:  # with other settings a needed stage may not exist
                    context.output(needed)
            self.run(context)
        return self.load(context)

    def applies(self, settings: Settings) -> bool:
        """Return whether a run with these settings has the stage."""
        return True

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """Return the settings that the output depends on, as prefixes of their dotted names. Default: all settings.

        Another run's stage with equal values for these, and for which `agrees` holds, has the same output bit for bit
        and can be reused (`bcnet.stages.reuse`). Model, data, seed, space and machine must always be equal.

        """
        return ALL

    def plan(self, settings: Settings, workload: Workload) -> Planned | None:
        """Return the amount of work; None to hide the stage from the plan."""
        return Planned(self.name, 1, "stage", kind=self.kind, file=self.file)

    @property
    def timed_as(self) -> tuple[str, ...]:
        """Names under which the stage's time is recorded."""
        return (self.name,)

    def is_in(self, directory: RunDirectory) -> bool:
        """Return whether a directory has files of the stage, its own or reused ones."""
        return directory.file(self.file).exists()

    def agrees(self, theirs: RunDirectory, context: Context) -> bool:
        """Return whether another run's stage, whose settings in `reads` are equal, agrees in everything else."""
        return True

    def reuse(self, theirs: RunDirectory, context: Context) -> None:
        """Copy the stage's files from another run, marked as this run's."""
        context.directory.write(self.file, theirs.read(self.file))


def copy_tensors(theirs: RunDirectory, ours: RunDirectory, files: Mapping[str, str]) -> None:
    """Copy tensor files in order; `files` maps their names to their marks."""
    for name, mark in files.items():
        tensors, state = read_tensors(theirs.file(f"{name}.safetensors"), theirs.identity(mark))
        write_tensors(ours.file(f"{name}.safetensors"), tensors, ours.identity(mark), state)


def in_order(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the stages sorted so that each follows all that it needs, otherwise in the given order.

    Raises:
        RunError: two stages share a name, or stages need each other.
    """
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise RunError(f"stages of a run must have different names; got two of the name {name!r}: rename yours")
    # The given order is kept where the needs allow it, so that progress and reports list stages as they are planned.
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
