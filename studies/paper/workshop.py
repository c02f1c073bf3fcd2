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
from bcnet.progress import Together, console_reporter
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.train import Distillation, Recipe, load_recipe
from studies.paper.networks import Network, Scale
from studies.shared.deadline import Deadline


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
    """Where the work of a study is done, at a scale. `sources` has a name as of `--data` for each kind of data.

    Work stops at the `deadline`, if there is one.
    """

    scale: Scale
    runs: Path
    sources: Mapping[str, str]
    device: str | None = None
    threads: int | None = None
    deadline: Deadline | None = None

    def space(self, network: Network, num_choices: int = 20) -> WidthSpace:
        """The width space of a network, traced without its data."""
        return _space(network, num_choices)

    def original_widths(self, network: Network) -> Widths:
        """The widths of the original network, also where this one is widened."""
        original = dataclasses.replace(network, model=network.original, original="") if network.widened else network
        return _space(original).full

    def supernet_run(self, network: Network, plan: Plan, seed: int) -> Path:
        """Where a supernet is trained."""
        return self._folder("supernet", network, self._supernet(network, plan, seed))

    def search_run(self, network: Network, budget: Budget, plan: Plan, seed: int) -> Path:
        """Where it is searched."""
        supernet = self.supernet_run(network, plan, seed).name
        about = {"budget": str(budget), "supernet": supernet, "searcher": plan.searcher, **self._searching(plan)}
        return self._folder("search", network, about)

    def random_run(self, network: Network, budget: Budget, seed: int) -> Path:
        """Where random networks are trained for a short while."""
        about = {"budget": str(budget), "epochs": self.scale.final_epochs(network), "seed": seed}
        return self._folder("random", network, about | self._random(network))

    def network_run(self, network: Network, widths: Widths, seed: int, *, distilled: bool = False) -> Path:
        """Where the network of these widths is trained."""
        epochs = self.scale.final_epochs(network)
        wanted = {"widths": list(widths), "epochs": epochs, "distilled": distilled, "seed": seed}
        return self._folder("network", network, wanted)

    def supernet(self, network: Network, plan: Plan, seed: int) -> Path:
        """The run directory of the trained supernet."""
        run = self.supernet_run(network, plan, seed)
        if not (run / "supernet.safetensors").exists():
            self._run(network, run, Budget(macs=0.5), plan, seed, until="prior")
        return run

    def search(self, network: Network, budget: Budget, plan: Plan, seed: int) -> bcnet.SearchOutcome:
        """Return the widths that a search finds on the supernet, and all that it evaluated."""
        supernet = self.supernet(network, plan, seed)
        place = self.search_run(network, budget, plan, seed)
        return self._run(network, place, budget, plan, seed, until="widths", reuse=[supernet])

    def random(self, network: Network, budget: Budget, seed: int) -> bcnet.SearchOutcome:
        """Return the best of some random networks near the budget, each trained for a short while."""
        return self._random_search(network, budget, seed, until="widths")

    def continued(self, network: Network, budget: Budget, seed: int) -> bcnet.SearchOutcome:
        """Return the network that `random` finds, its own training continued to the end, and tested."""
        return self._random_search(network, budget, seed, until="network")

    def train(self, network: Network, widths: Widths, seed: int, *, distilled: bool = False) -> bcnet.SearchOutcome:
        """Return the network of these widths, trained from scratch and tested; its teacher has the full width."""
        taught = load_recipe(network.recipe).distillation or Distillation()
        return bcnet.search(
            network.model,
            self._data(network),
            run_dir=self.network_run(network, widths, seed, distilled=distilled),
            method=bcnet.Given(widths),
            training=self._training(network, taught if distilled else None),
            seed=seed,
            until="network",
            reuse=self._siblings(network) if distilled else (),  # who may have trained the teacher
            **self._machine,
        )

    def _run(
        self, network: Network, place: Path, budget: Budget, plan: Plan, seed: int, **changes: Any
    ) -> bcnet.SearchOutcome:
        """Run some stages of a search on a supernet."""
        method = bcnet.BCNet(
            strategy=plan.strategy,
            searcher=plan.searcher,
            epochs=self.scale.training_epochs(network, plan.training),
            population=self.scale.population,
            generations=self.scale.searching_generations(plan.searching),
            **self.scale.search,
        )
        return bcnet.search(
            network.model,
            self._data(network),
            budget,
            place,
            method=method,
            training=network.recipe,
            seed=seed,
            space={"num_choices": plan.num_choices, "multiple_of": 1},
            **self._machine,
            **changes,
        )

    def _random_search(self, network: Network, budget: Budget, seed: int, **changes: Any) -> bcnet.SearchOutcome:
        epochs = min(self.scale.random_epochs, self.scale.final_epochs(network))
        return bcnet.search(
            network.model,
            self._data(network),
            budget,
            self.random_run(network, budget, seed),
            method=bcnet.Random(self.scale.random_widths, epochs=epochs, continued=True),
            training=self._training(network, None),
            start="scratch",
            seed=seed,
            **self._machine,
            **changes,
        )

    def _training(self, network: Network, distillation: Distillation | None) -> Recipe:
        changes = {"epochs": self.scale.final_epochs(network), "distillation": distillation}
        return load_recipe(network.recipe).model_copy(update=changes)

    def _supernet(self, network: Network, plan: Plan, seed: int) -> dict[str, Any]:
        epochs = self.scale.training_epochs(network, plan.training)
        return {
            "strategy": plan.strategy,
            "num_choices": plan.num_choices,
            "supernet_epochs": epochs,
            "seed": seed,
        }

    def _searching(self, plan: Plan) -> dict[str, Any]:
        generations = self.scale.searching_generations(plan.searching)
        wanted: dict[str, Any] = {"population": self.scale.population, "generations": generations}
        wanted |= self.scale.search
        return wanted if plan.searcher == "evolution" else wanted | {"searcher": plan.searcher}

    def _random(self, network: Network) -> dict[str, Any]:
        epochs = min(self.scale.random_epochs, self.scale.final_epochs(network))
        return {"random_networks": self.scale.random_widths, "random_epochs": epochs, "random_continued": True}

    def _siblings(self, network: Network) -> list[Path]:
        folders = self.runs.glob(f"network-{self._name(network)}-*")
        return sorted(folder for folder in folders if (folder / "original.safetensors").exists())

    @property
    def _reporter(self) -> bcnet.Reporter:
        return console_reporter() if self.deadline is None else Together(console_reporter(), self.deadline)

    @property
    def _machine(self) -> dict[str, Any]:
        options = {"device": self.device, "threads": self.threads}
        return {"options": options, "reporter": self._reporter, "progress": False}

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
    return WidthSpace.trace(spec.build(), torch.zeros(2, *spec.input_size), num_choices=num_choices, multiple_of=1)
