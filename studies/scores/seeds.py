"""How much of the differences between the best candidates of a search is the seed of their training?

For every run of `bcnet search --effort ...` given, the candidates that scored highest, the balanced and the Uniform
widths, and those of `--widths`, are trained again as candidates are, each by several seeds: of the order of the images,
their augmentation, and the batches of batch norm's statistics. The original that they start from stays. A score is
taken for a sum, s_ij = network_i + seed_j + noise_ij; in nats, `noise` is the standard deviation of the last and
`signal` that of the first, over the best (`studies.scores.tuning`). No test image is looked at.

    python -m studies.scores.seeds RUN [RUN ...] [--best 8] [--seeds 4] [--widths NAME=16,16,32,...]

writes `results/score_seeds.csv`, a row for every network, and prints noise and signal of what is there.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

import bcnet
from bcnet.space import Widths
from bcnet.stages import Context, stages_of, trial_scorer
from studies.ranking.statistics import Array
from studies.scores.tuning import noise, signal
from studies.shared.provenance import ROOT, append_row, finished, provenance, rows_of

OUT = ROOT / "results" / "score_seeds.csv"
BEST = "best"


def main(
    runs: Annotated[list[Path], typer.Argument(help="Run directories with --effort, their candidates scored.")],
    best: Annotated[int, typer.Option(help="How many of the highest scores.", min=2)] = 8,
    seeds: Annotated[int, typer.Option(help="By which each network is trained.", min=2)] = 4,
    widths: Annotated[list[str] | None, typer.Option(help="NAME=16,16,...: others to train; repeatable.")] = None,
    threads: Annotated[int, typer.Option(help="Of every pass.")] = 1,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Write the rows that are not there."""
    torch.set_num_threads(threads)
    others = dict(_given(text) for text in widths or ())
    for place in runs:
        run = bcnet.Run.open(place)
        settings = run.settings
        if not settings.has_trials or not run.evaluations:
            raise typer.BadParameter(f"{place} is no run that trained candidates: make one by bcnet search --effort")
        key = {"model": settings.model, "budget": str(settings.budget), "seed": str(settings.seed), "seeds": str(seeds)}
        ranked = sorted(run.evaluations, key=lambda c: -c.score)
        context = Context.of_run(place)
        space = context.workload.space
        networks = {f"{BEST} {number}": c.widths for number, c in enumerate(ranked[:best], 1)}
        networks |= {"balanced": space.balanced(settings.budget), "Uniform": space.uniform(settings.budget), **others}
        first = {c.widths: round(c.score, 4) for c in ranked}
        for name, network in networks.items():
            if finished(out, {**key, "network": name}):
                continue
            scores = [_score(context, network, seed) for seed in range(seeds)]
            figures = {
                "mean": round(float(np.mean(scores)), 4),
                "scores": " ".join(f"{score:.4f}" for score in scores),
                "score_in_search": first.get(network, ""),
                "macs_ratio": round(space.cost(network).macs / space.reference.macs, 4),
                "params": space.cost(network).params,
                "widths": " ".join(map(str, network)),
            }
            append_row(out, {**key, "network": name, **figures, **provenance()})
            print(name, figures, flush=True)
        scores_of_best = table(out, key)
        print(f"{place}: noise {noise(scores_of_best):.4f}, signal {signal(scores_of_best):.4f} nats over the best")


def table(file: Path, key: dict[str, str]) -> Array:
    """The scores of the best of a run, shape `(networks, seeds)`."""
    rows = [row for row in rows_of(file, key) if row["network"].startswith(f"{BEST} ")]
    return np.array([[float(score) for score in row["scores"].split()] for row in rows])


def _score(context: Context, widths: Widths, seed: int) -> float:
    """The score of a candidate that is trained by another seed; 0 is the run's own."""
    settings = context.settings.model_copy(update={"final_seed": context.settings.seed_of_networks + seed})
    return trial_scorer(dataclasses.replace(context, settings=settings, stages=stages_of(settings))).score(widths)


def _given(text: str) -> tuple[str, Widths]:
    name, _, numbers = text.partition("=")
    try:
        return name, tuple(int(n) for n in numbers.split(","))
    except ValueError:
        raise typer.BadParameter(f"--widths is NAME=16,16,..., a whole number for each group; got {text!r}") from None


if __name__ == "__main__":
    typer.run(main)
