"""How a run finds its widths: given, by a search on its supernet, or by a baseline (spec, section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from bcnet.searchers import Random, Searcher, SearchResult
from bcnet.space import Widths
from bcnet.stages.base import Context, find_prior, train_original, train_supernet
from bcnet.stages.choice import Choice
from bcnet.stages.finalists import choose
from bcnet.stages.pruning import prune
from bcnet.stages.search import Judge, evolve, searcher_of
from bcnet.stages.trials import trial_judge
from bcnet.stages.tuning import judge_of
from bcnet.supernet import Supernet


@dataclass(frozen=True)
class Narrowed:
    """The widths to train as a choice; `found` all that was evaluated, None where nothing was.

    `skipped` counts the bad steps left out of the training of the `supernet`, if there is one.
    """

    choice: Choice
    found: SearchResult | None = None
    supernet: Supernet | None = None
    skipped: int = 0


def find_widths(context: Context) -> Narrowed:
    """The widths of a run, in the way that its settings say. The test images take no part.

    Raises:
        BCNetError: as `bcnet.search` and `bcnet.baseline`.
    """
    settings, space = context.settings, context.subject.space
    if settings.widths is not None:
        return _settled(settings.widths)
    if settings.baseline == "uniform":
        return _settled(space.uniform(macs=settings.budget_macs, params=settings.budget_params))
    if settings.baseline == "random":
        choice, found = _searched(context, Random(settings.random_networks), trial_judge(context), "trials")
        return Narrowed(choice, found)
    if settings.baseline is not None:
        return _settled(prune(context, train_original(context, None)))
    supernet, records = train_supernet(context)
    prior = find_prior(context, records) if settings.needs_prior else None
    judge = judge_of(context, supernet)
    choice, found = _searched(context, searcher_of(settings, prior), judge, "evolution")
    return Narrowed(choice, found, supernet, len(records.skipped))


def _settled(widths: Widths) -> Narrowed:
    return Narrowed(Choice(widths, (), 0))


def _searched(context: Context, searcher: Searcher, judge: Judge, stage: str) -> tuple[Choice, SearchResult]:
    found = evolve(context, searcher, judge, stage)
    for note in found.notes:
        context.reporter.note(note)
    return choose(context, judge, found), found
