"""The search of a run: what scores candidates, which are scored, and each stored as it is."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bcnet.data import Batch
from bcnet.machine.precision import Precision, autocast
from bcnet.prior import Prior
from bcnet.progress.base import Advance
from bcnet.run.directory import RunDirectory
from bcnet.run.early_stop import race_of
from bcnet.run.score import score_text
from bcnet.run.settings import Settings
from bcnet.searchers import (
    Candidate,
    EvaluationStore,
    Evolution,
    Greedy,
    GreedyEvolution,
    ImageScores,
    Metric,
    PerImage,
    PriorOnly,
    Random,
    Searcher,
    SearchResult,
    SupernetEvaluator,
    search_widths,
)
from bcnet.searchers.scoring import Score
from bcnet.space import Cost, Side, Widths
from bcnet.stages.base import Context
from bcnet.stages.room import search_bytes
from bcnet.supernet import Supernet
from bcnet.train import STRATEGIES

_NEAR_BUDGET = 0.9  # share of the budget from which "greedy-evolution" counts MACs


@dataclass(frozen=True)
class Judge:
    """What scores candidates, and what scores the best again on fresh images; None where a score is final.

    `longer` says that the second score follows on more training than the first, and so decides alone.
    """

    score: Score
    again: ImageScores | None = None
    longer: bool = False


def supernet_judge(context: Context, supernet: Supernet) -> Judge:
    """Scores by the supernet, or by the user's own function of widths."""
    of_widths = context.subject.source.own.of_widths
    if of_widths is not None:
        return Judge(of_widths)
    subject = context.subject
    return Judge(
        supernet_evaluator(context, supernet, subject.validation), supernet_evaluator(context, supernet, subject.fresh)
    )


def network_score(context: Context, network: nn.Module) -> float:
    """The score of a plain network in eval mode on the validation images, in the units of the run's metric."""
    precision = context.settings.final.precision
    return network_evaluator(context, network, context.subject.validation, precision).on_side((), Side.LEFT)


def network_evaluator(
    context: Context, network: nn.Module, batches: Sequence[Batch], precision: Precision
) -> SupernetEvaluator:
    """What scores a plain network in eval mode on `batches`: of no widths, and of one side."""
    device = next(network.parameters()).device

    def logits(images: torch.Tensor, _: Widths, __: Side) -> torch.Tensor:
        with autocast(precision, device):
            output: torch.Tensor = network(images)
        return output

    return SupernetEvaluator(logits, batches, metric_of(context), (Side.LEFT,))


def metric_of(context: Context) -> Metric | PerImage:
    """What a run makes of the logits of images: its own score, or the user's."""
    return context.subject.source.own.per_image or context.settings.score


def searcher_of(settings: Settings, prior: Prior | None) -> Searcher:
    """What chooses the candidates for a supernet to score; `prior` where the settings need one."""
    candidates = settings.population * settings.generations
    if settings.searcher == "greedy":
        return Greedy(candidates)
    if settings.searcher == "random":
        return Random(candidates)
    if settings.searcher == "prior-only":
        assert prior is not None
        return PriorOnly(prior, candidates)
    evolution = Evolution(settings.population, settings.generations, settings.parents, prior)
    if settings.searcher == "greedy-evolution":
        return GreedyEvolution(dataclasses.replace(evolution, macs_from=_NEAR_BUDGET))
    return evolution


def evolve(context: Context, searcher: Searcher, judge: Judge, stage: str = "evolution") -> SearchResult:
    """The search (spec, section 5), replayed from its stored evaluations as far as they go."""
    settings, subject, directory = context.settings, context.subject, context.directory
    if not directory.has("rescored.json"):
        directory.check_room(stage, search_bytes(searcher.limit, len(subject.space.groups), len(subject.validation)))
    with (
        _evaluations(context) as store,
        _timed_unless(len(store.evaluations) >= searcher.limit, directory, stage),
        context.reporter.stage(stage, searcher.limit, "candidates") as advance,
    ):
        return search_widths(
            subject.space,
            judge.score,
            settings.budget,
            searcher=searcher,
            seed=settings.seed if settings.search_seed is None else settings.search_seed,
            store=store,
            callback=_Told(context, stage, advance, len(store.evaluations)),
            mapper=context.world.map,
            early_stop=None if judge.again is None else race_of(settings, len(subject.validation)),
        )


class _Told:
    """Tells people of every candidate, and of the best one within the budget so far.

    The `stored` first ones are replayed: that says nothing about speed, and they have been told of.
    """

    def __init__(self, context: Context, stage: str, advance: Advance, stored: int) -> None:
        self._reporter, self._stage, self._advance, self._stored = context.reporter, stage, advance, stored
        self._metric = context.settings.metric
        self._budget = context.subject.space.feasible(context.settings.budget)
        self._best: float | None = None  # greedy search starts over the budget

    def __call__(self, candidate: Candidate, done: int, limit: int) -> None:
        if candidate.complete and self._budget.admits(candidate.cost):
            self._best = candidate.score if self._best is None else max(self._best, candidate.score)
        if done <= self._stored:
            return
        figures, told = {"score": candidate.score, "macs": float(candidate.cost.macs)}, "none within the budget yet"
        if self._best is not None:
            figures["best score"] = self._best
            told = f"best score {score_text(self._best, self._metric)}"
        self._reporter.figures(self._stage, done, figures)
        self._reporter.evaluation(candidate, done)
        self._advance(done, told)


@contextmanager
def _evaluations(context: Context) -> Iterator[EvaluationStore]:
    """The evaluations on disk; on all processes but the first a copy in memory, from which they replay the same."""
    space, settings, file = context.subject.space, context.settings, context.directory.file("evaluations.sqlite")
    with contextlib.ExitStack() as held:
        opened: list[EvaluationStore] = []

        def known() -> list[Any]:
            opened.append(held.enter_context(EvaluationStore(file, space, settings.fingerprint())))
            return [dataclasses.astuple(c) for c in opened[0].evaluations]

        rows = context.world.on_lead(known)
        if not opened:
            opened.append(held.enter_context(EvaluationStore(":memory:", space, settings.fingerprint())))
            for widths, score, cost, batches, upper in rows:
                opened[0].add(Candidate(tuple(widths), score, Cost(*cost), tuple(batches), upper))
        yield opened[0]


def supernet_evaluator(context: Context, supernet: Supernet, batches: Sequence[Batch]) -> SupernetEvaluator:
    """What scores widths on `batches` by the paths of a supernet, from the sides that it was trained by."""
    assert context.settings.device is not None
    precision, device = context.settings.supernet.precision, torch.device(context.settings.device)

    def logits(images: torch.Tensor, widths: Widths, side: Side) -> torch.Tensor:
        with autocast(precision, device):
            output: torch.Tensor = supernet(images, widths, side)
        return output

    return SupernetEvaluator(logits, batches, metric_of(context), STRATEGIES[context.settings.strategy]().sides)


@contextmanager
def _timed_unless(finished: bool, directory: RunDirectory, stage: str) -> Iterator[None]:
    if finished:
        yield
    else:
        with directory.timed(stage):
            yield
