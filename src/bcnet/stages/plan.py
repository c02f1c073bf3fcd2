"""The stages ahead of a run and their work, from which its end is forecast.

Work is in multiply-adds: a forward pass over one image is those of the path, a training pass three times as many.
"""

from __future__ import annotations

import torch

from bcnet.progress.forecast import Planned
from bcnet.progress.record import STAGE_FILES, stage_names
from bcnet.run.settings import Settings
from bcnet.run.subject import Subject
from bcnet.space import WidthSpace
from bcnet.train import STRATEGIES, derived_generator

_TRAINING_PASS = 3
_SAMPLES = 64


def stages_ahead(settings: Settings, subject: Subject, files: set[str]) -> list[Planned]:
    """The stages of a run in their order; those whose file is among `files` are finished."""
    space = subject.space
    final_steps = len(subject.all_training) * settings.final.epochs
    full, within = space.reference.macs, _usual_macs(space, settings)
    taught = full if settings.final.distillation is not None else 0

    def training(name: str, macs: float, teacher: float = 0.0) -> Planned:
        work = settings.final.batch_size * (_TRAINING_PASS * macs + teacher)
        return Planned(name, final_steps, "steps", work, finished=STAGE_FILES[name] in files)

    trials = len(subject.training) * settings.trial.epochs * settings.trial.batch_size * _TRAINING_PASS * within
    repeated = settings.baseline == "uniform"  # the searched network is the Uniform one
    planned = [
        _supernet(settings, subject, "supernet.safetensors" in files),
        Planned("prior", 1, "problem", kind="prior", finished="prior.json" in files),
        Planned(
            "evolution",
            settings.population * settings.generations,
            "candidates",
            _scoring(settings, subject, settings.tune_steps) * within,
            kind="scoring",
            finished="rescored.json" in files,
        ),
        Planned(
            "finalists",
            settings.rescored,
            "networks",
            _scoring(settings, subject, settings.finalist_steps) * within,
            finished="rescored.json" in files,
        ),
        Planned("trials", settings.random_networks, "networks", trials, finished="rescored.json" in files),
        training("original", full),
        Planned("pruning", 1, "network", kind="pruning", finished="pruned.json" in files),
        training("Uniform", within, taught),
        training("searched", 0 if repeated else within, 0 if repeated else taught),
    ]
    names = stage_names(settings.model_dump(mode="json"))
    return [stage for stage in planned if stage.name in names]


def _supernet(settings: Settings, subject: Subject, finished: bool) -> Planned:
    space, recipe = subject.space, settings.supernet
    generator = derived_generator(settings.seed, "forecast")
    strategy = STRATEGIES[settings.strategy]()
    costs = [
        sum(space.cost(path.widths).macs for term in strategy.plan(space, generator) for path in term.paths)
        for _ in range(_SAMPLES)
    ]
    work = _TRAINING_PASS * recipe.batch_size * float(torch.tensor(costs, dtype=torch.float64).mean())
    return Planned("supernet", len(subject.training) * recipe.epochs, "steps", work, finished=finished)


def _scoring(settings: Settings, subject: Subject, steps: int) -> int:
    """Forward passes, or what is as much work, of one image to score a candidate after `steps` of fine-tuning."""
    images = sum(len(labels) for _, labels in subject.validation)
    if not steps:
        return len(STRATEGIES[settings.strategy]().sides) * images
    return _TRAINING_PASS * steps * settings.supernet.batch_size + images


def _usual_macs(space: WidthSpace, settings: Settings) -> int:
    """What candidates within the budget cost: those that are found use it up."""
    limit, most = settings.budget.resolve(space.reference).macs, int(space.reference.macs)
    return most if limit is None else min(int(limit), most)
