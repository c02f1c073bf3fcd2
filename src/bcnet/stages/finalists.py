"""The best candidates of a search scored again, and one of them chosen.

Fine-tuned finalists take a while, so they are a stage of their own, and each is kept as it is scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bcnet.errors import RunError
from bcnet.run.score import score_text
from bcnet.searchers import Candidate, Rescored, SearchResult, rescore
from bcnet.stages.base import Context
from bcnet.stages.choice import Choice, apart, best_again, choice, finalists
from bcnet.stages.search import Judge

_BEGUN = "finalists.json"  # while they are scored; then rescored.json has them all


def choose(context: Context, judge: Judge, found: SearchResult) -> Choice:
    """Score the best candidates again where the judge can, and choose one of them (see `bcnet.stages.choice`)."""
    file = context.directory.file("rescored.json")
    fresh = sum(len(labels) for _, labels in context.subject.fresh) if judge.again is not None else 0
    inside = {c.widths: c for c in found.evaluations if found.budget.admits(c.cost)}
    if not context.directory.has("rescored.json"):
        with context.directory.timed("rescore"):
            best = _finalists(context, judge, list(inside.values()))
            rows = [_row(r) for r in _scored_again(context, judge, best)]
            context.directory.write("rescored.json", {"rescored": rows})
    context.directory.drop(_BEGUN)
    try:
        rescored = _read(context, "rescored.json", inside)
    except (KeyError, TypeError, ValueError, OverflowError):
        rescored = []
    if not rescored:
        raise RunError(f"{file} names widths that evaluations.sqlite lacks: restore the two files, or start a new run")
    if judge.longer:
        return best_again(rescored, fresh)
    return choice(rescored, sum(len(labels) for _, labels in context.subject.validation), fresh)


def _finalists(context: Context, judge: Judge, inside: list[Candidate]) -> list[Candidate]:
    """The best; where they are fine-tuned for longer, those that are a choice of width apart in the mean."""
    settings = context.settings
    if judge.longer:
        return apart(inside, settings.rescored, context.subject.space, 1 / settings.num_choices)
    return finalists(inside, settings.rescored)


def _scored_again(context: Context, judge: Judge, best: Sequence[Candidate]) -> tuple[Rescored, ...]:
    if judge.again is None:
        return tuple(Rescored(c, c.score, c.score, c.score) for c in best)
    if not judge.longer:
        return rescore(best, judge.again, len(best), mapper=context.world.map)
    done = _read(context, _BEGUN, {c.widths: c for c in best}) if context.directory.has(_BEGUN) else []
    scored = {r.candidate.widths for r in done}
    with context.reporter.stage("finalists", len(best), "networks") as advance:

        def kept(rescored: Rescored) -> None:
            done.append(rescored)
            context.directory.write(_BEGUN, {"rescored": [_row(r) for r in done]})
            top = max(r.score for r in done)
            advance(len(done), f"best score {score_text(top, context.settings.metric)}")

        waiting = [c for c in best if c.widths not in scored]
        rescore(waiting, judge.again, len(waiting), mapper=context.world.map, callback=kept)
    return tuple(sorted(done, key=lambda r: -r.score))


def _row(rescored: Rescored) -> list[Any]:
    return [list(rescored.candidate.widths), rescored.score, rescored.low, rescored.high]


def _read(context: Context, name: str, known: dict[tuple[int, ...], Candidate]) -> list[Rescored]:
    rows = context.directory.read(name)["rescored"]
    return [Rescored(known[tuple(w)], float(score), float(low), float(high)) for w, score, low, high in rows]
