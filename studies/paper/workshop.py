"""Trained supernets, searches on them, and networks trained from scratch, each made once whatever number of cells ask.

Everything is a run directory of bcnet below `runs`, named by what it depends on: a killed study goes on where it was,
and `bcnet status` tells how far a run is.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import bcnet
from bcnet.data import DataSet, load
from bcnet.progress import console_reporter
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.train import Distillation, load_recipe
from studies.paper.networks import Network, Scale


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
        wanted |= self.scale.search
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
        scale = self.scale
        epochs = self.scale.final_epochs(network)
        wanted: dict[str, Any] = {
            "random_networks": scale.random_widths,
            "random_epochs": min(scale.random_epochs, epochs),
        }
        return bcnet.find_widths(
            network.model,
            self._data(network),
            budget=budget,
            run_dir=self._folder("random", network, {"budget": str(budget), "epochs": epochs, "seed": seed, **wanted}),
            recipe=network.recipe,
            changes={"final.epochs": epochs},
            baseline="random",
            seed=seed,
            reporter=console_reporter(),
            **wanted,
            **self._machine,
        )

    def train(self, network: Network, widths: Widths, seed: int, *, distilled: bool = False) -> bcnet.TrainedNetwork:
        """The network of these widths, trained from scratch and tested; its teacher is the one of full width."""
        epochs = self.scale.final_epochs(network)
        taught = load_recipe(network.recipe).distillation or Distillation()
        wanted = {"widths": list(widths), "epochs": epochs, "distilled": distilled, "seed": seed}
        return bcnet.train_widths(
            network.model,
            self._data(network),
            widths,
            run_dir=self._folder("network", network, wanted),
            seed=seed,
            recipe=network.recipe,
            changes={"final.epochs": epochs, "final.distillation": taught.model_dump() if distilled else None},
            take_from=self._siblings(network) if distilled else (),  # who may have trained the teacher
            reporter=console_reporter(),
            **self._machine,
        )

    def _siblings(self, network: Network) -> list[Path]:
        folders = self.runs.glob(f"network-{self._name(network)}-*")
        return sorted(folder for folder in folders if (folder / "original.safetensors").exists())

    @property
    def _machine(self) -> dict[str, Any]:
        return {"device": self.device, "threads": self.threads}

    def _data(self, network: Network) -> DataSet:
        return _data(self.sources[network.data], network.image_size)

    def _folder(self, kind: str, network: Network, about: Mapping[str, object]) -> Path:
        return self.runs / f"{kind}-{self._name(network)}-{_digest(about)}"

    def _name(self, network: Network) -> str:
        """A network on its data: others have the same model at another size, or a wider one of the same name."""
        facts = {"network": dataclasses.asdict(network), "data": self.sources[network.data]}
        return f"{network.model.rpartition(':')[2]}-{_digest(facts)}"


def _digest(facts: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


@functools.cache
def _data(source: str, image_size: int) -> DataSet:
    return load(source, image_size=image_size)


@functools.cache
def _space(network: Network, num_choices: int = 20) -> WidthSpace:
    spec = network.spec()
    return WidthSpace.trace(spec.build(), torch.zeros(2, *spec.input_size), num_choices=num_choices)
