"""A step that ended a run, run again."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from bcnet.errors import ModelError, RunError
from bcnet.machine.defaults import memory_format, threads
from bcnet.nests import taken, tensors
from bcnet.run.directory import RunDirectory, check_usable, read_settings
from bcnet.run.inputs import InputFacts, described
from bcnet.run.settings import Settings
from bcnet.run.workload import ModelLike, make_model, refuse_to_import, trace, widened_model
from bcnet.space import WidthSpace
from bcnet.stages.supernet import supernet_learner
from bcnet.supernet import Supernet, build
from bcnet.tasks import Classification, Loss, Task
from bcnet.train import FailedStep, Learner, NetworkLearner, Replay, SupernetLearner, load_failed_step
from bcnet.train import replay as replay_step


def replay(
    run_dir: str | Path, model: ModelLike | None = None, *, loss: Loss | None = None, task: Task | None = None
) -> Replay:
    """Run the newest step that ended a training in `run_dir` again, and find out what went wrong in it.

    The data are not needed: the batch was saved. On the run's kind of device and with its number of threads the losses
    are the same to the bit, whatever is there now. Nothing is written.

    Args:
        run_dir: the run directory.
        model: what `bcnet.search` was given, where that was no name.
        loss, task: what `bcnet.search` was given, where it was.

    Raises:
        RunError: no step was saved, a file is damaged or of another run, or the run's own loss is needed.
        ModelError: the model is not the run's.

    Example: `bcnet.replay("runs/half").paths[0].broken`
    """
    path = Path(run_dir)
    check_usable(path)
    settings = read_settings(path)
    if (settings.loss is None) != (loss is None):
        raise RunError(f"a replay needs the loss of the run, {settings.loss or 'none'}: call bcnet.replay(..., loss=)")
    if settings.task != (Classification.name if task is None else task.description):
        raise RunError(f"a replay needs the task of the run, {settings.task}: call bcnet.replay(..., task=)")
    directory = RunDirectory(path, settings)
    failed_step = _newest(directory)
    network = _network(path, settings, model, failed_step)
    space = trace(network, taken(failed_step.batch("x"), slice(2)), settings)
    if directory.read("space.json")["fingerprint"] != space.fingerprint():
        raise ModelError(f"a replay needs the model of the run, {settings.model!r}; got one of another width space")
    if settings.supernet_width > 1 and not failed_step.about["widths"]:
        network = widened_model(network, None, space, settings)
    learner = _learner(network, space, settings, failed_step)
    learner.task = Classification(loss) if task is None else task
    layout = settings.layout if isinstance(learner, SupernetLearner) else "channels_last"
    learner.module.to(_device(settings), memory_format=memory_format(layout))  # type: ignore[call-overload]
    with threads(settings.threads):
        return replay_step(learner, failed_step)


def _newest(directory: RunDirectory) -> FailedStep:
    files = sorted(directory.file("bad_steps").glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns)
    if not files:
        raise RunError(
            f"run directory {directory.path} holds no step to replay: no bad step has ended a training in it"
        )
    stage = files[-1].name.rpartition("-step-")[0]
    failed_step = load_failed_step(files[-1], directory.identity(stage))
    if not {"classes", "widths"} <= failed_step.about.keys():
        raise RunError(f"{files[-1]} does not say what the module was: let the run meet the step again")
    return failed_step


def _network(path: Path, settings: Settings, model: ModelLike | None, failed_step: FailedStep) -> nn.Module:
    if model is None and " " in settings.model:
        raise ModelError(
            f"the run was started in Python with a model of yours, {settings.model}: call bcnet.replay(run_dir, model)"
        )
    if model is None:
        refuse_to_import(settings.model, path)
    channels, height = (*tensors(failed_step.batch("x"))[0].shape[1:], 1, 1)[:2]
    wanted = settings.model if model is None else model
    return make_model(wanted, failed_step.about["classes"], channels, height)[1]


def _device(settings: Settings) -> str:
    assert settings.device is not None
    return settings.device if settings.device == "cpu" or torch.cuda.is_available() else "cpu"


def _learner(network: nn.Module, space: WidthSpace, settings: Settings, failed_step: FailedStep) -> Learner:
    widths = tuple(failed_step.about["widths"])
    if not widths:
        inputs = InputFacts(described(failed_step.batch("x")), (), None)
        return supernet_learner(Supernet(network, space), settings, inputs)
    return NetworkLearner(build(network, space, widths))
