"""`result.json`: what came out, in plain numbers. Accuracies are percent, scores are of `search.metric`."""

from __future__ import annotations

import dataclasses
import functools
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bcnet
from bcnet.costs import Cost
from bcnet.machine.devices import device_name
from bcnet.run.workload import Workload
from bcnet.searchers import SearchResult, heuristic_widths
from bcnet.space.problem import Problem
from bcnet.stages.base import Context
from bcnet.stages.final import TrainedNetwork
from bcnet.stages.finalists import Choice
from bcnet.stages.reliability import Reliability
from bcnet.stages.search import found_by
from bcnet.stages.trials import longer_epochs
from bcnet.tasks import Task


def result_document(context: Context) -> dict[str, Any]:
    """The content of `result.json`. Equal runs give equal documents, but for what is under `seconds`.

    `search` is null where no candidates were scored.
    """
    space = context.workload.space
    settings = context.settings
    original, uniform, searched = (context.output(name) for name in ("original", "Uniform", "searched"))
    search = found_by(context)
    supernet_skipped = len(context.output("supernet")[1].skipped) if "supernet" in context.names else 0
    budget = context.workload.budget
    limits = budget.resolve(space.reference)
    return {
        "format": 1,
        "model": settings.model,
        "data": settings.data,
        "class_names": list(context.workload.source.input.class_names),
        "method": settings.method.name,
        "origin": settings.method.origin,
        "task": task_document(context.workload.source.task),
        "budget": {"macs": limits.macs, "params": limits.params, "given": str(budget)}
        | _if_any({measure.description: limit for measure, limit in limits.others.items()}),
        "widths": {g.name: w for g, w in zip(space.groups, searched.widths, strict=True)},
        "networks": {
            name: _network(trained, space.reference)
            for name, trained in (
                ("original", original),
                ("uniform", uniform),
                ("searched", searched),
            )
        },
        "search": None if search is None else _search(context, context.output("finalists"), search),
        "groups": [
            {"name": g.name, "max_width": full, "uniform": u, "searched": w}
            for g, full, u, w in zip(space.groups, space.original_widths, uniform.widths, searched.widths, strict=True)
        ],
        **({"measured_latency": context.output("timing")} if "timing" in context.names else {}),
        **({"reliability": _reliability(context)} if "reliability" in context.names else {}),
        "epochs": {"supernet": settings.supernet_recipe.epochs, "final": settings.training.epochs},
        "skipped_steps": {
            "supernet": supernet_skipped,
            "original": original.skipped,
            "uniform": uniform.skipped,
            "searched": searched.skipped,
        },
        "stopped_early": _stopped_early(original, uniform, searched),
        "start": settings.start,
        "own": {"loss": settings.loss, "score": settings.custom_score},
        "seed": settings.seed,
        "device": {
            "name": device_name(settings.options.device or "cpu"),
            "threads": settings.options.threads,
            "processes": settings.options.processes,
        },
        "versions": versions(),
        "seconds": context.directory.seconds(),
    }


def _reliability(context: Context) -> dict[str, Any] | None:
    found: Reliability | None = context.output("reliability")
    return None if found is None else {**dataclasses.asdict(found), "verdict": found.verdict, "text": str(found)}


def _search(context: Context, choice: Choice, found: SearchResult) -> dict[str, Any]:
    settings = context.settings
    score = next(c.score for c in found.evaluations if c.widths == choice.widths)
    again = next(r for r in choice.rescored if r.candidate.widths == choice.widths)
    return {
        "metric": settings.metric,
        "score": score,
        "fresh_score": again.score,
        "fresh_interval": [again.low, again.high],
        "fresh_images": choice.fresh_images,
        "finalist_epochs": longer_epochs(settings),
        "evaluations": len(found.evaluations),
        "rescored": [
            {"widths": list(r.candidate.widths), "score": r.candidate.score, "fresh_score": r.score}
            for r in choice.rescored
        ],
        "heuristics": _heuristics(context.workload, found, choice),
        "notes": list(found.notes),
    }


def _heuristics(workload: Workload, found: SearchResult, choice: Choice) -> list[dict[str, Any]]:
    """Return what the search made of the widths that need none, as far as it scored them, or scored them again."""
    candidates = {c.widths: c for c in found.evaluations}
    again = {r.candidate.widths: r.score for r in choice.rescored}
    heuristics = heuristic_widths(Problem.of(workload.space, workload.budget))
    return [
        {
            "name": name,
            "widths": list(widths),
            "score": candidates[widths].score,
            "macs_ratio": candidates[widths].cost.macs / workload.space.reference.macs,
            **({"fresh_score": again[widths]} if widths in again else {}),
        }
        for name, widths in heuristics.items()
        if widths in candidates
    ]


def _stopped_early(*networks: TrainedNetwork) -> dict[str, dict[str, int]]:
    """The epochs that networks were trained, and the best of them, where early stopping was asked for."""
    ends = {trained.name: trained.ended for trained in networks if trained.ended is not None}
    return {name: {"epochs": epochs, "best": best} for name, (epochs, best) in ends.items()}


def origin_note(document: Mapping[str, Any]) -> str:
    """Return a sentence on where the widths of a run come from that scored no candidates."""
    return str(document["origin"] or f"The widths were found by the method {document['method']}.")


def training_notes(document: Mapping[str, Any]) -> str:
    """Sentences on what was unusual about the trainings; nothing where all was as usual."""
    networks = document["networks"]
    # Agreement in R^2 is 0 where a constant output would do as well.
    ruined = [name for name in ("uniform", "searched") if networks[name]["test"].get("agreement", 100.0) <= 0]
    ends = [
        f"{name} after epoch {found['epochs']} (best: {found['best']})"
        for name, found in document.get("stopped_early", {}).items()
    ]
    skipped = [f"{name} {count}" for name, count in document["skipped_steps"].items() if count]
    notes = (
        f"No better than a constant output: {', '.join(ruined)}; lower the learning rate, or train for longer."
        if ruined
        else "",
        f"Early stopping ended the training of {', '.join(ends)}." if ends else "",
        f"Bad training steps left out: {', '.join(skipped)}." if skipped else "",
    )
    return " ".join(filter(None, notes))


def _if_any(others: Mapping[str, Any]) -> dict[str, Any]:
    return {"others": dict(others)} if others else {}


def _network(trained: TrainedNetwork, reference: Cost) -> dict[str, Any]:
    return {
        "widths": list(trained.widths),
        "macs": trained.cost.macs,
        "macs_ratio": trained.cost.macs / reference.macs,
        "params": trained.cost.params,
        "test": dict(trained.test.figures),
        "test_errors": dict(trained.test.errors),
        "test_images": trained.test.count,
        "by_class": {str(number): list(row) for number, row in trained.test.by_class.items()},
    } | _if_any(trained.cost.others)


@functools.cache
def versions() -> dict[str, str]:
    """The versions of what a result depends on, when it was first asked: a checkout may move on meanwhile."""
    commit = _commit()
    return {
        "python": platform.python_version(),
        "bcnet": metadata.version("bcnet"),
        **({} if commit is None else {"commit": commit}),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "pymoo": metadata.version("pymoo"),
        "scipy": metadata.version("scipy"),
    }


def _commit() -> str | None:
    """The commit of this package where it runs from a checkout, marked where its files are not quite those of it."""
    package = Path(bcnet.__file__).parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(package), *words], capture_output=True, text=True, check=False)
        except OSError:  # no git here
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", "__init__.py") is None:  # installed, perhaps within somebody's repository
        return None
    return f"{git('rev-parse', '--short', 'HEAD')}{'+changes' if git('status', '--porcelain', '--', '.') else ''}"


def task_document(task: Task) -> dict[str, Any]:
    """Return what documents say of a task."""
    return {"name": task.name, "headline": dataclasses.asdict(task.headline)}


def table_rows(document: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Key, label and figures of the networks in `result.json`, in the order in which they are shown."""
    labels = {"original": "original", "uniform": "Uniform", "searched": "searched"}
    return [(name, label, document["networks"][name]) for name, label in labels.items()]
