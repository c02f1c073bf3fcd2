"""Are widths well chosen layer by layer: one group of a trained network narrowed at a time, and distilled for a moment?

Each group is narrowed to some shares of its width, its most important channels kept, and the layers that belong to it
alone learn for `steps` steps to give the outputs of the trained network. What the held-out loss has then grown by is
taken to add up over groups, and to lie on lines in the logarithm of the width between the shares. The widths with the
smallest sum under the budget need no further training to be found.

For finished runs of `bcnet search --effort ...` from the original, a row for each of: these widths, those that the run
found, the balanced and the Uniform ones, each trained for as many epochs as a candidate of the run, and scored on the
same held-out images. No test image is looked at. The arm ends where these widths are not ahead of the run's own at half
of the multiply-adds of a quarter of VGG19: that was settled beforehand.

    python -m studies.scores.blocks RUN [RUN ...]

writes `results/blocks.csv`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import nn
from torch.nn import functional

import bcnet
from bcnet.machine import UnitStrides
from bcnet.searchers import Evolution
from bcnet.space import Widths, WidthSpace
from bcnet.stages import Context
from bcnet.supernet import Side, Supernet, build, by_importance, recalibrate, reordered
from bcnet.train import NetworkLearner, derived_generator, train
from studies.shared.provenance import ROOT, append_row, finished, provenance

OUT = ROOT / "results" / "blocks.csv"
SHARES = (0.25, 0.5, 0.75)
_BATCHES = 20  # for the statistics of batch norm
_LR = 0.02
_CHOSEN = "rescored.json"  # of a run, its choice first


def main(
    runs: Annotated[list[Path], typer.Argument(help="Finished runs with --effort, from the original.")],
    steps: Annotated[int, typer.Option(help="Of distillation, for each group and share.")] = 40,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Write the rows that are not there."""
    for place in runs:
        run = bcnet.Run.open(place)
        settings = run.settings
        if settings.final_from != "original" or not (place / _CHOSEN).exists():
            raise typer.BadParameter(f"{place} is no run that scored candidates from the original")
        key = {"model": settings.model, "budget": str(settings.budget), "seed": str(settings.seed), "steps": str(steps)}
        if not finished(out, key | {"widths_by": "Uniform"}):
            for row in Blocks(place, steps).rows():
                append_row(out, {**key, **row, **provenance()})
                print({**key, **row}, flush=True)


class Blocks:
    """A run's trained original, narrowed."""

    def __init__(self, place: Path, steps: int) -> None:
        self._context = Context.of_run(place)
        self._workload = self._context.workload
        self._space: WidthSpace = self._workload.space
        self._steps = steps
        trained = copy.deepcopy(self._workload.model)
        trained.load_state_dict(self._context.directory.read_tensors("original.safetensors", "original")[0])
        example = self._workload.validation[0][0][:2]
        self._network = reordered(trained, self._space, by_importance(trained, self._space), example).eval()
        self._supernet = Supernet(self._network, self._space)

    def rows(self) -> list[dict[str, object]]:
        """What each widths come to."""
        began = time.monotonic()
        tables = [self._grown(g) for g in range(len(self._space.groups))]
        budget = self._workload.budget
        found = bcnet.search_widths(
            self._space, lambda widths: -summed(tables, widths), budget, searcher=Evolution(100, 200, 25)
        )
        minutes = (time.monotonic() - began) / 60
        chosen = {
            "blocks": found.best.widths,
            "search": tuple(self._context.directory.read(_CHOSEN)["rescored"][0][0]),
            "balanced": self._space.balanced(budget),
            "Uniform": self._space.uniform(budget),
        }
        return [
            {
                "widths_by": name,
                "loss": round(self._scored(widths), 4),
                "grown": round(summed(tables, widths), 4),
                "macs_ratio": round(self._space.cost(widths).macs / self._space.reference.macs, 4),
                "widths": " ".join(map(str, widths)),
                "minutes": round(minutes, 1) if name == "blocks" else "",
            }
            for name, widths in chosen.items()
        ]

    def _grown(self, group: int) -> list[tuple[int, float]]:
        """Widths of a group and what the loss has grown by, never less for less."""
        own = self._space.groups[group]
        table = [(own.max_width, 0.0)]
        before = self._loss(self._network)
        for share in sorted(SHARES, reverse=True):
            width = max(own.unit, int(share * own.max_width) // own.unit * own.unit)
            widths = tuple(width if g == group else other.max_width for g, other in enumerate(self._space.groups))
            grown = self._loss(self._distilled(widths, group)) - before
            table.append((width, max(grown, table[-1][1])))
        return table

    def _built(self, widths: Widths) -> nn.Module:
        network = build(self._network, self._space, widths, weights=(self._supernet, Side.LEFT))
        batches = self._workload.training.epoch(derived_generator(0, "statistics"))
        return recalibrate(network, [x for x, _ in _first(batches, _BATCHES)])

    def _distilled(self, widths: Widths, group: int) -> nn.Module:
        network = self._built(widths).train()
        for name, parameter in network.named_parameters():
            segments = [s for dim in self._space.layouts.get(name, ()) for s in dim]
            parameter.requires_grad_(any(s.group == group for s in segments))
        learnt = [p for p in network.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(learnt, lr=_LR, momentum=0.9)
        strides = UnitStrides(network)
        for x, _ in _first(self._workload.training.epoch(derived_generator(1, "blocks")), self._steps):
            with torch.no_grad():
                wanted = self._network(x)
            optimizer.zero_grad()
            with strides.applied():
                loss = functional.mse_loss(network(x), wanted)
            loss.backward()
            optimizer.step()
        return network.eval()

    @torch.inference_mode()
    def _loss(self, network: nn.Module) -> float:
        """Mean cross-entropy on the held-out images."""
        losses = [functional.cross_entropy(network(x), y, reduction="none") for x, y in self._workload.validation]
        return float(torch.cat(losses).mean())

    def _scored(self, widths: Widths) -> float:
        """The held-out loss after a candidate's training."""
        network = self._built(widths)
        settings = self._context.settings
        train(NetworkLearner(network), self._workload.training, settings.trial, seed=settings.seed_of_networks)
        return self._loss(network.eval())


def summed(tables: Sequence[Sequence[tuple[int, float]]], widths: Widths) -> float:
    """What the loss grows by where the groups' shares add up, on lines in the logarithm of the width."""
    total = 0.0
    for table, width in zip(tables, widths, strict=True):
        known = np.log([w for w, _ in reversed(table)])
        grown = np.array([loss for _, loss in reversed(table)])
        slope = float((grown[1] - grown[0]) / (known[1] - known[0]))
        below = min(0.0, float(np.log(width) - known[0]))
        total += float(np.interp(np.log(width), known, grown)) + slope * below
    return total


def _first(batches: Iterable[tuple[Any, Any]], count: int) -> Iterator[tuple[Any, Any]]:
    for _, batch in zip(range(count), batches, strict=False):
        yield batch


if __name__ == "__main__":
    typer.run(main)
