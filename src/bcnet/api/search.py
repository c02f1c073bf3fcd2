"""`search`, the function that users call."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from bcnet.api.outcome import SearchOutcome, Until, check_until, run_until, stages_until
from bcnet.api.resolution import MethodLike, resolve
from bcnet.distributed import join_processes
from bcnet.errors import RecipeError
from bcnet.progress import Reporter, Together, console_reporter
from bcnet.report import finish, report_outcome
from bcnet.run import names
from bcnet.run.directory import run_path
from bcnet.run.pretrained import Weights
from bcnet.run.recipes import TrainingLike
from bcnet.run.settings import RunOptions, SpaceSettings, make_section
from bcnet.run.workload import DataLike, ModelLike
from bcnet.space import Budget
from bcnet.stages.base import Stage
from bcnet.stages.reuse import other_runs
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
    reuse: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
    stages: Sequence[Stage] = (),
    options: RunOptions | Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    progress: bool | None = None,
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> SearchOutcome:
    """Find, train and compare the best widths of `model` under `budget`.

    If `run_dir` holds an unfinished run with the same arguments, it is resumed; finished stages are not repeated. Under
    torchrun every process makes this call, the work is shared, and all get the same result (docs/distributed.md).

    Args:
        model: an `nn.Module`, a function without arguments that returns one, or a name as for `--model`.
        data: a name as for `--data`, a `DataSet`, a `datasets.DatasetDict`, or a tuple `(train, test)` or `(train,
            validation, test)` of torch datasets, pairs of arrays or loaders. From a single data set a fifth is held out
            for the test. Raw images with class numbers are normalised and augmented (see `DataSet.from_datasets`).
            Other items and the batches of loaders are used unchanged (see `Loaders`, which also says when a run on
            loaders is repeatable).
        budget: the limit, for instance `Budget(macs=0.5)`. It may be omitted with the method `Given`, whose widths then
            define it.
        run_dir: a new or empty folder, or the folder of a run with the same settings.
        method: how widths are found: an instance of `bcnet.Trainings` (the default), `BCNet`, `AutoSlim`, `Random`,
            `Uniform`, `Balanced`, `Pruned`, `Given` or your own `Method`; or text as for `--method`.
        training: how networks are trained: a `Recipe`, the name of one, a YAML file, or a mapping of changes to the
            default recipe for the model and data. By default that recipe.
        epochs: number of training epochs; replaces the recipe's.
        start: initial weights of narrow networks. "scratch": random. "original": the most important channels of the
            original after its training. "pretrained": the most important channels of the weights that the model comes
            with, or of `pretrained`. "supernet": the first channels of the supernet. Default: "original"; "pretrained"
            for a model with trained weights; "scratch" with the method `BCNet`.
        pretrained: weights of the model, as a state dict or a safetensors file. A supernet starts from them too.
            Tensors of other shapes, such as a last layer for other classes, are skipped.
        space: the admissible widths: `SpaceSettings(multiple_of=8)`, or a mapping of its fields.
        task: the training task, if it is not classification: a `bcnet.Task`, or a name with settings
            ("segmentation:classes=21").
        loss: a function of logits `(batch, classes)` and labels `(batch,)` that returns a scalar. It replaces
            cross-entropy and label smoothing in all training.
        teacher: a trained network with the inputs and classes of `model`. The Uniform and the searched network are
            distilled from it instead of from the original, with the recipe's `distillation` or its default.
        seed: seed of every random draw.
        until: stop early: "prior" after the supernet and its prior, "widths" after the search, "network" after the
            found network is trained, without the comparison. Calling again without `until` continues the run.
        reuse: directories of other runs of the model on the same data. Finished results that both runs share are copied
            and not computed again. All runs with the same seed and recipe share the original.
        stages: your own stages (`bcnet.Stage`). Each runs before the stages that need it, by default at the end.
        options: options that most runs leave unset: `RunOptions(threads=1)`, or a mapping of its fields.
        tags: names for `loss` and for the method's `score`, required where the functions have no importable name by
            which a resumed run could recognise them.
        progress: show progress and the closing table. Default: True in a terminal and in a notebook.
        reporter: receives the events of the run.
        checkpoint_seconds: longest training time between two checkpoints. It is exceeded where writing them would cost
            more than 2 % of the time.

    Only one thread of a process searches at a time; further calls wait.

    Raises:
        KeyboardInterrupt: on Ctrl-C, with one sentence that says what is kept.
        BCNetError: any other failure; the message says what is wrong, the value received, and what to do. Nothing is
            written before model, data, space and budget are known to fit.

    Example: `search(resnet, "cifar10", Budget(macs=0.5), "runs/half").network`
    """
    check_seconds(checkpoint_seconds)
    check_until(until)
    if reporter is not None and not isinstance(reporter, Reporter):
        raise RecipeError(f"reporter must be a value of a subclass of bcnet.Reporter; got {reporter!r}")
    shows = _is_interactive() if progress is None else progress
    console = [console_reporter()] if shows else []
    path = run_path(run_dir)
    chosen = make_section(RunOptions, options)
    with report_stop(path), one_at_a_time(), torch.enable_grad(), join_processes(chosen.device) as world:
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
            lambda context: run_until(context, until),
            workload,
            settings,
            path,
            world,
            reporter=Together(*([reporter] if reporter is not None else []), *console),
            checkpoint_seconds=checkpoint_seconds,
            until=stages_until(settings, until),
            take_from=other_runs([reuse] if isinstance(reuse, (str, os.PathLike)) else reuse, path),
            own=stages,
        )
    outcome = finish(outcome, model, workload.space) if until is None else report_outcome(outcome)
    if shows:
        print(outcome)
    return outcome


@contextmanager
def report_stop(path: Path) -> Iterator[None]:
    """On Ctrl-C inside the block, say what is kept in the run directory `path` and how to resume."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if type(stop) is not KeyboardInterrupt:  # subclasses have their own handler (SIGTERM)
            raise
        kept = f"Stopped. Finished work is kept in {path}; the same call resumes it."
        begun = (path / names.SETTINGS).exists()
        raise one_line_stop(kept if begun else "Stopped before anything was written.") from None


def one_line_stop(text: str) -> KeyboardInterrupt:
    """Return an exception that Python and IPython print as `text` only, without a traceback (exit code 130)."""
    stopped = KeyboardInterrupt(text)
    stopped._render_traceback_ = lambda: [text]  # type: ignore[attr-defined]  # IPython calls it
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
    """Let one thread search at a time: torch.export and the global generators belong to the whole process."""
    with _SEARCHING:
        yield


def _is_interactive() -> bool:
    """Return whether the output is a terminal or a notebook."""
    return sys.stdout.isatty() or "ipykernel" in sys.modules
