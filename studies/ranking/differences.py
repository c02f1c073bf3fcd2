"""What each difference between our default search and the paper's does: on a table of trained networks, one at a time.

The table is Channel-Bench-Macro's MobileNet; scores, judges and simulated records are those of `channel_bench_macro`.
Searches are of three generations of 40, fewer than find the best by any of these rules. A row is one search under one
budget by one kind of scores, the mean over seeds: how much better the best network within the budget is than the one
found (regret, in points), with its standard error, and the share of the original's multiply-adds that is used.

What the final choice does is seen where there are fresh scores: "noisy, third" are searches by one of the three
trainings of each network, whose ten best get another's accuracy as their score on fresh images; the third judges. Seeds
take the three in all six orders, in turn: of one order alone it is the luck of a few networks that is seen.

    python -m studies.ranking.differences [--quick] [--seeds 40]

writes `results/differences.csv`; finished rows are not computed again.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import permutations, product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bcnet.methods import PAPER
from bcnet.prior import learn_prior
from bcnet.searchers import Evolution, Rescored, SearchResult, heuristic_widths, search_widths
from bcnet.space import Budget, Problem, Widths
from bcnet.stages import pooled_choice
from studies.ranking.channel_bench_macro import BUDGETS, DATA, MOBILENET, Table, of_network, simulated_records
from studies.shared.provenance import ROOT, append_row, finished, provenance

Accuracies = np.ndarray[tuple[int], np.dtype[np.float64]]
OUT = ROOT / "results" / "differences.csv"
GENERATIONS = 3
# What a search has of the paper's; the rest is the default.
SEARCHES: Mapping[str, Sequence[str]] = {
    "default": (),
    "the best 100 records of all steps": ("keep_records", "records_since"),
    "the prior's budget not tightened": ("tightened",),
    "no balanced and Uniform widths at the start": ("first_generation",),
    "fewer MACs always a gain": ("macs_from",),
    "tournament by rank and crowding": ("tournament",),
    "a prior that is not softened": ("effective_widths",),
    "preset paper": tuple(PAPER),
}
_OF_THE_PRIOR = {"keep_records": "keep", "records_since": "since", "tightened": "tightened"}
THIRD = "noisy, third"
FINAL_CHOICES = {"the best score": 1, "the ten best scored again": 10}
"""How many of the default search's best are scored again."""


def searcher(table: Table, names: Sequence[str], seed: int, budget: Budget) -> Evolution:
    """Our evolution, with the paper's settings of these names."""
    own = {argument: PAPER[name] for name, argument in _OF_THE_PRIOR.items() if name in names}
    if "effective_widths" in names:
        own["effective_widths"] = 1.0  # the optimum of Eq. 13 itself, which no setting of the preset can say
    first = () if "first_generation" in names else heuristic_widths(Problem.of(table.space, budget)).values()
    return Evolution(
        generations=GENERATIONS,
        prior=learn_prior(table.space, *simulated_records(table, seed), budget, **own),
        first=tuple(first),
        **{name: PAPER[name] for name in ("macs_from", "tournament") if name in names},
    )


def chosen(table: Table, found: SearchResult, second: Accuracies, rescored: int) -> Widths:
    """The final choice, after scores of so many of the best by a `second` training, `(networks,)`.

    Their standard error is the trainings' own: that of a difference of two is larger by the root of 2.
    """
    first, other, _ = table.accuracies.T
    half = 1.96 * float(np.std(first - other)) / math.sqrt(2)  # of a 95 % interval
    inside = [c for c in found.evaluations if found.budget.admits(c.cost)]
    best = sorted(inside, key=lambda c: (-c.score, -c.cost.macs))[:rescored]
    fresh = [float(second[table.rows[c.widths]]) for c in best]
    again = [Rescored(c, score, score - half, score + half) for c, score in zip(best, fresh, strict=True)]
    return pooled_choice(again, 1, 1).widths


def row_of(table: Table, name: str, kind: str, ratio: float, seeds: int) -> dict[str, object]:
    """The means over seeds."""
    budget = Budget(macs=ratio)
    rescored = FINAL_CHOICES.get(name, 1)
    inside = table.macs <= ratio * table.space.reference.macs
    orders = list(permutations(range(3)))
    regrets = []
    used = []
    for seed in range(seeds):
        scores = table.score(kind)
        judge = table.judge(kind)
        if kind == THIRD:
            scores, second, judge = (table.accuracies[:, training] for training in orders[seed % len(orders)])

        def score(widths: Widths, scores: Accuracies = scores) -> float:
            return float(scores[table.rows[widths]])

        evolution = searcher(table, SEARCHES.get(name, ()), seed, budget)
        found = search_widths(table.space, score, budget, searcher=evolution, seed=seed)
        widths = found.best.widths if rescored == 1 else chosen(table, found, second, rescored)
        best = float(judge[inside].max())
        regrets.append(best - float(judge[table.rows[widths]]))
        used.append(table.space.cost(widths).macs / table.space.reference.macs)
    return {
        "search": name,
        "scores": kind,
        "budget": ratio,
        "seeds": seeds,
        "regret": round(statistics.mean(regrets), 3),
        "standard_error": round(statistics.stdev(regrets) / math.sqrt(seeds), 3),
        "macs_ratio": round(statistics.mean(used), 4),
        **provenance(),
    }


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Two seeds at one budget; writes quick_*.")] = False,
    seeds: Annotated[int, typer.Option(help="Of every row.")] = 40,
    table: Annotated[Path, typer.Option(help="The table.")] = DATA,
    network: Annotated[str, typer.Option(help="Its network: mobilenet, resnet, or a name of ours.")] = MOBILENET,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Compute the rows that are missing."""
    if not table.is_file():
        raise SystemExit(f"the table {table} is not there: get Channel-Bench-Macro's mobilenet.csv, or give --table")
    out = of_network(out, OUT, network)
    budgets = BUDGETS[1:2] if quick else BUDGETS
    seeds, out = (2, out.with_name(f"quick_{out.name}")) if quick else (seeds, out)
    read = functools.cache(lambda: Table.read(table, network))
    cells = [*product(SEARCHES, ("exact", "noisy")), *product(FINAL_CHOICES, (THIRD,))]
    for (name, kind), ratio in product(cells, budgets):
        if not finished(out, {"search": name, "scores": kind, "budget": str(ratio), "seeds": str(seeds)}):
            row = row_of(read(), name, kind, ratio, seeds)
            append_row(out, row)
            print(row, flush=True)


if __name__ == "__main__":
    typer.run(main)
