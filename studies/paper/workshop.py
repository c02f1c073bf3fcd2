"""Trained supernets, searches on them, and networks trained from scratch, each made once whatever number of cells ask.

Everything is a run directory of bcnet below `runs`, named by what it depends on: a killed study goes on where it was,
and `bcnet status` tells how far a run is.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

import bcnet
from bcnet.api import resolve
from bcnet.data import DataSet, load
from bcnet.distributed import ProcessGroup
from bcnet.progress.terminal import console_reporter
from bcnet.run.settings import Settings
from bcnet.run.subject import Subject
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.stages.base import Context
from bcnet.stages.conduct import conduct
from bcnet.stages.course import TO_THE_WIDTHS, to_the_widths
from bcnet.stages.final import SearchedStage, Trained
from bcnet.train import CHECKPOINT_SECONDS, Distillation, load_recipe
from studies.paper.networks import Network, Scale

_T = TypeVar("_T")


@dataclass(frozen=True)
class Plan:
    """How widths are searched; `training` and `searching` are times the scale's epochs and generations.

    `strategy` and `searcher` are those of `bcnet search`.
    """

    strategy: str = "complementary"
    searcher: str = "evolution"
    num_choices: int = 20
    training: float = 1.0
    searching: float = 1.0


@dataclass(frozen=True)
class Workshop:
    """Where the work of a study is done, at a scale. `sources` has a name as of `--data` for each kind of data."""

    scale: Scale
    runs: Path
    sources: Mapping[str, str]
    device: str | None = None
    threads: int | None = None

    def space(self, network: Network, num_choices: int = 20) -> WidthSpace:
        """The width space of a network, traced without its data."""
        return _space(network, num_choices)

    def original_widths(self, network: Network) -> Widths:
        """The widths of the original network, also where this one is widened."""
        original = dataclasses.replace(network, model=network.original, original="") if network.widened else network
        return _space(original).full

    def supernet(self, network: Network, plan: Plan, seed: int) -> Path:
        """The run directory of the trained supernet."""
        epochs = self.scale.training_epochs(network, plan.training)
        wanted: dict[str, Any] = {
            "strategy": plan.strategy,
            "num_choices": plan.num_choices,
            "supernet_epochs": epochs,
            "seed": seed,
        }
        run = self._folder("supernet", network, wanted)
        if not (run / "supernet.safetensors").exists():
            bcnet.train_supernet(
                network.model,
                self._data(network),
                run_dir=run,
                recipe=network.recipe,
                reporter=console_reporter(),
                **wanted,
                **self._machine,
            )
        return run

    def search(self, network: Network, budget: Budget, plan: Plan, seed: int) -> bcnet.FoundWidths:
        """The widths that a search finds on the supernet, and all that it evaluated."""
        origin = self.supernet(network, plan, seed)
        generations = self.scale.searching_generations(plan.searching)
        wanted: dict[str, Any] = {"population": self.scale.population, "generations": generations}
        if plan.searcher != "evolution":
            wanted["searcher"] = plan.searcher
        about = {"budget": str(budget), "supernet": origin.name, "searcher": plan.searcher, **wanted}
        return bcnet.evolve(
            origin,
            run_dir=self._folder("search", network, about),
            budget=budget,
            model=network.model,
            data=self._data(network),
            reporter=console_reporter(),
            **wanted,
        )

    def random(self, network: Network, budget: Budget, seed: int) -> bcnet.FoundWidths:
        """The best of some random networks near the budget, each trained for a short while (`bcnet.baseline`)."""
        scale, epochs = self.scale, self.scale.final_epochs(network)
        wanted = {"random_networks": scale.random_widths, "random_epochs": min(scale.random_epochs, epochs)}
        run = self._folder("random", network, {"budget": str(budget), "epochs": epochs, "seed": seed, **wanted})
        subject, settings = resolve(
            network.model,
            self._data(network),
            budget=budget,
            run_dir=run,
            recipe=network.recipe,
            changes={"final.epochs": epochs},
            baseline="random",
            seed=seed,
            **wanted,
            **self._machine,
        )
        return self._conducted(to_the_widths, subject, settings, run, TO_THE_WIDTHS)

    def train(self, network: Network, widths: Widths, seed: int, *, distilled: bool = False) -> Trained:
        """The network of these widths, trained from scratch and tested; its teacher is the one of full width."""
        teacher = self.train(network, self.space(network).full, seed).network if distilled else None
        epochs = self.scale.final_epochs(network)
        wanted = {"widths": list(widths), "epochs": epochs, "distilled": distilled, "seed": seed}
        run = self._folder("network", network, wanted)
        taught = load_recipe(network.recipe).distillation or Distillation()
        space = self.space(network)
        subject, settings = resolve(
            network.model,
            self._data(network),
            budget=Budget(macs=max(space.cost(w).macs for w in (widths, space.narrowest))),  # which a run has to have
            run_dir=run,
            recipe=network.recipe,
            changes={"final.epochs": epochs, "final.distillation": taught.model_dump() if distilled else None},
            widths=widths,
            seed=seed,
            **self._machine,
        )

        def course(context: Context) -> Trained:
            return _Taught(teacher).output(context)

        return self._conducted(course, subject, settings, run, ("searched",))

    def _conducted(
        self, course: Callable[[Context], _T], subject: Subject, settings: Settings, run: Path, stages: Sequence[str]
    ) -> _T:
        return conduct(
            course,
            subject,
            settings,
            run,
            ProcessGroup(),
            reporter=console_reporter(),
            checkpoint_seconds=CHECKPOINT_SECONDS,
            until=stages,
        )

    @property
    def _machine(self) -> dict[str, Any]:
        return {"device": self.device, "threads": self.threads}

    def _data(self, network: Network) -> DataSet:
        return _data(self.sources[network.data], network.image_size)

    def _folder(self, kind: str, network: Network, about: Mapping[str, object]) -> Path:
        facts = {"network": dataclasses.asdict(network), "data": self.sources[network.data], **about}
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
        return self.runs / f"{kind}-{network.model.rpartition(':')[2]}-{digest}"


class _Taught(SearchedStage):
    """The network of given widths, trained from scratch with a teacher of another run."""

    def __init__(self, teacher: nn.Module | None) -> None:
        self._teacher = teacher

    def teacher(self, context: Context) -> nn.Module | None:
        return self._teacher


@functools.cache
def _data(source: str, image_size: int) -> DataSet:
    return load(source, image_size=image_size)


@functools.cache
def _space(network: Network, num_choices: int = 20) -> WidthSpace:
    spec = network.spec()
    return WidthSpace.trace(spec.build(), torch.zeros(2, *spec.input_size), num_choices=num_choices)
