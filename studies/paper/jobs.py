"""One row of the paper's experiments: a network made narrower by one method at one budget, and what it comes to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from bcnet.models import published
from bcnet.searchers import Candidate
from bcnet.space import Budget, Widths
from studies.paper.networks import Network
from studies.paper.workshop import Plan, Workshop
from studies.shared.cells import Cell

USUAL = Plan()
AUTOSLIM = Plan("sandwich", "greedy")


@dataclass(frozen=True)
class Job:
    """A row of a study, as the paper has it.

    `method` names where the widths come from (see `METHODS`). `budget` is in MACs of the paper's network. Where
    `trained` is off the row ends with the widths, and lists all scores of their search. `first` is a share of the
    search's evaluations: of those from the first one on the best-scoring widths are taken; None takes what the search
    chose in the end. `published` is an entry of `bcnet.models.published.table()` and a variant, "vgg19_cifar10:0.5".
    `paper` are the paper's own figures: `params` in millions, `top1` and `top5` in percent.
    """

    network: Network
    method: str
    budget: int | None = None
    plan: Plan = USUAL
    trained: bool = True
    first: float | None = None
    published: str = ""
    paper: Mapping[str, str] | None = None
    seed: int = 0

    def cell(self, workshop: Workshop) -> Cell:
        """The job at the workshop's scale, as a row of a CSV file."""
        return Cell(_key(self, workshop), functools.partial(_figures, self, workshop))


@dataclass(frozen=True)
class Found:
    """Widths, and where a search found them its evaluations."""

    widths: Widths
    evaluations: tuple[Candidate, ...] = ()
    score: float | None = None


@dataclass(frozen=True)
class Method:
    """A way to widths; `searches` on a supernet, trains the result with `distilled`, or the training is `continued`."""

    widths: Callable[[Job, Workshop], Found]
    searches: bool = False
    distilled: bool = False
    continued: bool = False


def budget_of(job: Job, workshop: Workshop) -> Budget:
    """The job's budget for what is trained at the workshop's scale: of a stand-in the same share of its MACs."""
    assert job.budget is not None
    share = job.budget / job.network.macs
    return Budget(macs=round(share * workshop.scale.network(job.network).macs))


def _original(job: Job, workshop: Workshop) -> Found:
    return Found(workshop.space(workshop.scale.network(job.network)).full)


def _uniform(job: Job, workshop: Workshop) -> Found:
    space = workshop.space(workshop.scale.network(job.network))
    return Found(space.uniform(macs=budget_of(job, workshop).macs))


def _balanced(job: Job, workshop: Workshop) -> Found:
    space = workshop.space(workshop.scale.network(job.network))
    return Found(space.balanced(macs=budget_of(job, workshop).macs))


def _searched(job: Job, workshop: Workshop) -> Found:
    network = workshop.scale.network(job.network)
    outcome = workshop.search(network, budget_of(job, workshop), job.plan, job.seed)
    evaluations = outcome.found.evaluations
    if job.first is not None:
        first = evaluations[: max(1, round(job.first * len(evaluations)))]
        best = max(first, key=lambda c: (c.score, c.cost.macs))
        return Found(best.widths, first, best.score)
    scores = {c.widths: c.score for c in evaluations}
    return Found(outcome.widths, evaluations, scores[outcome.widths])


def _random(job: Job, workshop: Workshop) -> Found:
    outcome = workshop.random(workshop.scale.network(job.network), budget_of(job, workshop), job.seed)
    return Found(outcome.widths, outcome.found.evaluations)


def _published(job: Job, workshop: Workshop) -> Found:
    network = workshop.scale.network(job.network)
    model = network.spec().build()
    entry, _, variant = job.published.partition(":")
    return Found(published.widths(workshop.space(network), model, entry, variant))


METHODS: Mapping[str, Method] = {
    "original": Method(_original),
    "uniform": Method(_uniform),
    "balanced": Method(_balanced),
    "random": Method(_random, continued=True),
    "bcnet": Method(_searched, searches=True),
    "bcnet-distilled": Method(_searched, searches=True, distilled=True),
    "autoslim": Method(_searched, searches=True),
    "search": Method(_searched, searches=True),
    "published": Method(_published),
}


def _key(job: Job, workshop: Workshop) -> dict[str, object]:
    scale = workshop.scale
    network = workshop.scale.network(job.network)
    plan = job.plan
    searching: dict[str, object] = {
        "strategy": plan.strategy,
        "searcher": plan.searcher,
        "num_choices": plan.num_choices,
        "supernet_epochs": scale.training_epochs(job.network, plan.training),
        "candidates": scale.population * scale.searching_generations(plan.searching),
        "first": "all" if job.first is None else job.first,
    }
    return {
        "scale": scale.name,
        "network": job.network.name,
        "budget": "" if job.budget is None else job.budget,
        "method": job.method,
        "published": job.published,
        **(searching if METHODS[job.method].searches else dict.fromkeys(searching, "")),
        "final_epochs": scale.final_epochs(job.network) if job.trained else "",
        "model": network.model.rpartition(":")[2],
        "data": network.data,
        "image_size": network.image_size,
        "seed": job.seed,
    }


def _figures(job: Job, workshop: Workshop) -> dict[str, object]:
    network = workshop.scale.network(job.network)
    method = METHODS[job.method]
    found = method.widths(job, workshop)
    space = workshop.space(network)
    cost = space.cost(found.widths)
    columns: dict[str, object] = {
        "macs": cost.macs,
        "macs_ratio": round(cost.macs / network.macs, 4),
        "params": cost.params,
        "top1": "",
        "top5": "",
        "score": "" if found.score is None else round(found.score, 4),
        "evaluations": len(found.evaluations) or "",
        "widths": _spaced(found.widths),
        "original_widths": _spaced(workshop.original_widths(network)),
        "scores": "" if job.trained else _spaced(round(c.score, 3) for c in found.evaluations),
    }
    if job.trained:
        if method.continued:
            trained = workshop.continued(network, budget_of(job, workshop), job.seed)
        else:
            trained = workshop.train(network, found.widths, job.seed, distilled=method.distilled)
        test = trained.test
        columns |= {name: round(test.figures[name], 3) for name in ("top1", "top5")}
    paper = (job.paper or {}) if workshop.scale.stand_in is None else {}
    columns |= {f"paper_{name}": paper.get(name, "") for name in ("params", "top1", "top5")}
    threads = workshop.threads or torch.get_num_threads()
    return columns | {"device": workshop.device or "auto", "threads": threads, "torch": torch.__version__}


def _spaced(values: Iterable[object]) -> str:
    return " ".join(map(str, values))
