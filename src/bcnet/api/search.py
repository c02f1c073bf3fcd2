"""The call that people make: `search`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from bcnet.api.outcome import SearchOutcome, Until, check_until, go_on_until, stages_until
from bcnet.api.resolution import MethodLike, resolve
from bcnet.distributed import join_processes
from bcnet.progress import Reporter, Together, console_reporter
from bcnet.report import finish, report_outcome
from bcnet.run import names
from bcnet.run.pretrained import Weights
from bcnet.run.recipes import TrainingLike
from bcnet.run.settings import RunOptions, SpaceSettings, make_section
from bcnet.run.workload import DataLike, ModelLike
from bcnet.space import Budget
from bcnet.stages.base import Stage
from bcnet.stages.reuse import others
from bcnet.stages.running import check_seconds, run_stages
from bcnet.tasks import Loss, Task
from bcnet.train import CHECKPOINT_SECONDS


def search(
    model: ModelLike,
    data: DataLike,
    budget: Budget | None = None,
    run_dir: str | Path = "runs/search",
    *,
    method: MethodLike | None = None,
    training: TrainingLike | None = None,
    epochs: int | None = None,
    start: str | None = None,
    pretrained: Weights | None = None,
    space: SpaceSettings | Mapping[str, Any] | None = None,
    task: Task | str | None = None,
    loss: Loss | None = None,
    teacher: nn.Module | None = None,
    seed: int = 0,
    until: Until | None = None,
    reuse: Sequence[str | Path] | str | Path = (),
    stages: Sequence[Stage] = (),
    options: RunOptions | Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    progress: bool | None = None,
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> SearchOutcome:
    """Find, train and compare the best widths of `model` under `budget`.

    Where `run_dir` holds the same run unfinished it is resumed, and what is finished is not done again. Started by
    torchrun, all processes make this call, share the work and get the same result (docs/distributed.md).

    Args:
        model: an `nn.Module`, a function without arguments that makes one, or a name as `--model` takes it.
        data: a name as `--data` takes it, a `DataSet`, a `datasets.DatasetDict`, or `(train, test)` or `(train,
            validation, test)`, of torch datasets, pairs of arrays, or loaders; of one alone a fifth is held out for the
            test. Raw images with class numbers are normalised and augmented (see `DataSet.from_datasets`); other items,
            and the batches of loaders, are used as they come (see `Loaders`, also for what they have to keep for a run
            to be repeatable).
        budget: the limit, for instance `Budget(macs=0.5)`. With the method `Given` it is the cost of the widths where
            it is left out.
        run_dir: a new folder, an empty one, or one of a run with the same settings.
        method: how the widths are found, a value of `bcnet.Trainings` (the default), `BCNet`, `AutoSlim`, `Random`,
            `Uniform`, `Balanced`, `Pruned`, `Given` or your own `Method`; or a text as `--method` takes it.
        training: how networks are trained: a `Recipe`, the name of one, a YAML file, or a mapping of changes to the
            recipe that suits model and data. By default that recipe.
        epochs: epochs of the training, in place of the recipe's.
        start: what networks start from: "scratch"; "original", the most important channels of the original once it is
            trained; "pretrained", those of weights that the model comes with or of `pretrained`; or "supernet", the
            first channels of the supernet. By default "original", or "pretrained" for a model with trained weights,
            and "scratch" with the method `BCNet`.
        pretrained: weights of the model, a state dict or a safetensors file; a supernet starts from them too. Tensors
            of another shape, as of a last layer for other classes, are left out.
        space: which widths may be chosen: `SpaceSettings(multiple_of=8)`, or a mapping of its fields.
        task: what the network is trained for, where that is not classification: a `bcnet.Task`, or its name with its
            settings ("segmentation:classes=21").
        loss: a function of logits `(batch, classes)` and labels `(batch,)` that gives a scalar, in place of
            cross-entropy (and label smoothing) in all training.
        teacher: a trained network, with the inputs and classes of `model`, that the Uniform and the searched network
            learn from beside the labels, in place of the original; with the recipe's `distillation`, or the usual one.
        seed: of every random draw.
        until: stop early: "prior" after the supernet and its prior, "widths" after the search, "network" after the
            training of the found network, without the networks to compare with. The same call without it goes on.
        reuse: other runs of the model on the data; what they have finished and share with this one is reused, never
            done again. All runs of one seed and recipe share the original.
        stages: stages of your own (`bcnet.Stage`), which come where they need others, else at the end.
        options: options that most runs leave alone: `RunOptions(threads=1)`, or a mapping of its fields.
        tags: names for `loss` and the method's `score` where the functions have none that a resumed run could know them
            by.
        progress: show progress and the closing table; by default in a terminal and in a notebook.
        reporter: receives the events of the run.
        checkpoint_seconds: the most training that is lost when the run is killed; longer where saving takes so long
            that it would cost more than 2 % of the time.

    Searches in several threads of one process wait for each other.

    Raises:
        KeyboardInterrupt: Ctrl-C, with a sentence on what is kept.
        BCNetError: with one message that says what is wrong, what was received, and what to do. Nothing is written
            before model, data, space and budget are known to fit.

    Example: `search(resnet, "cifar10", Budget(macs=0.5), "runs/half").network`
    """
    check_seconds(checkpoint_seconds)
    check_until(until)
    shows = _is_interactive() if progress is None else progress
    console = [console_reporter()] if shows else []
    path = Path(run_dir)
    chosen = make_section(RunOptions, options, "options")
    with told_when_stopped(path), one_at_a_time(), torch.enable_grad(), join_processes(chosen.device) as world:
        workload, settings = resolve(
            model,
            data,
            budget,
            path,
            method=method,
            training=training,
            epochs=epochs,
            start=start,
            pretrained=pretrained,
            space=space,
            task=task,
            loss=loss,
            teacher=teacher,
            seed=seed,
            stages=stages,
            options=chosen,
            tags=tags,
            world=world,
        )
        outcome = run_stages(
            lambda context: go_on_until(context, until),
            workload,
            settings,
            path,
            world,
            reporter=Together(*([reporter] if reporter is not None else []), *console),
            checkpoint_seconds=checkpoint_seconds,
            until=stages_until(settings, until),
            take_from=others([reuse] if isinstance(reuse, (str, Path)) else reuse, path),
            own=stages,
        )
    outcome = finish(outcome, model, workload.space) if until is None else report_outcome(outcome)
    if shows:
        print(outcome)
    return outcome


@contextmanager
def told_when_stopped(path: Path) -> Iterator[None]:
    """Say, where Ctrl-C ends the block, what is kept in the run directory `path` and how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if type(stop) is not KeyboardInterrupt:  # one with a meaning of its own, as SIGTERM on the command line
            raise
        kept = f"Stopped. What is finished is kept in {path}: the same call goes on with it."
        begun = (path / names.SETTINGS).exists()
        raise in_one_sentence(kept if begun else "Stopped before anything was written.") from None


def in_one_sentence(text: str) -> KeyboardInterrupt:
    """Return what Python and IPython show as `text` alone, without a traceback; Python then ends with code 130."""
    stopped = KeyboardInterrupt(text)
    stopped._render_traceback_ = lambda: [text]  # type: ignore[attr-defined]  # IPython asks for it
    usual = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if error is stopped:
            print(text, file=sys.stderr)
            raise SystemExit(130)  # Python's own code for a KeyboardInterrupt, which torch._dynamo turns into 1
        else:
            usual(kind, error, trace)

    sys.excepthook = show
    return stopped


_SEARCHING = threading.RLock()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Within the block no other thread searches: torch's exports and global generators are those of the process."""
    with _SEARCHING:
        yield


def _is_interactive() -> bool:
    """Return whether somebody watches: a terminal, or a notebook."""
    return sys.stdout.isatty() or "ipykernel" in sys.modules
