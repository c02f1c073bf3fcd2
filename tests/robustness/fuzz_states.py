"""Fuzzed: training states, and the documents of a run directory."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import nn

from bcnet import BCNet
from bcnet.cli.show import show_result
from bcnet.files.documents import write_document
from bcnet.files.tensors import read_tensors, write_tensors
from bcnet.prior.prior import Prior, prior_of_errors
from bcnet.run.directory import RunDirectory, read_result, read_settings
from bcnet.run.settings import Settings, make_settings
from bcnet.run.status import as_document, read_status
from bcnet.run.subject import Subject
from bcnet.space import Budget
from bcnet.tasks import Classification
from bcnet.testing import toy_space
from bcnet.train import Checkpoints, NetworkLearner, Recipe, train
from tests.robustness import mutations as m
from tests.robustness.fuzz_base import Target

IDENTITY = {"run": "fuzz", "stage": "supernet"}
RECIPE = Recipe(lr=0.1, batch_size=4, epochs=2)
METHOD = BCNet(population=4, generations=2, parents=2)
SMALL = {"space": {"num_choices": 4}, "options": {"threads": 1, "device": "cpu"}}


def settings() -> Settings:
    """Those of the run whose files are changed."""
    return make_settings(
        model="resnet_digits", data="digits", limits={"macs": 0.5}, method=METHOD, training=RECIPE, **SMALL
    )


def _tensors(rng: random.Random | None = None) -> dict[str, torch.Tensor]:
    tensors = {"module:w": torch.ones(3, 4), "module:n": torch.tensor(2), "optimizer:w/momentum_buffer": torch.ones(3)}
    if rng is not None:
        name = rng.choice(list(tensors))
        odd = (
            torch.ones(0),
            torch.ones(2, 2, 2, dtype=torch.float64),
            torch.tensor(1 << 60),
            torch.ones(3) * torch.nan,
        )
        if rng.random() < 0.7:
            tensors[name] = rng.choice(odd)
        else:
            tensors[rng.choice(("", "module:", "\x1b", "a" * 300))] = tensors.pop(name)
    return tensors


class Checkpoint(Target):
    """A training state."""

    name, file, checked = "checkpoint", "c.safetensors", True

    def prepare(self) -> None:
        write_tensors(self.folder / self.file, _tensors(), IDENTITY, {"step": 7, "total": 12, "scaler": {}})

    def read(self) -> Any:
        tensors, state = read_tensors(self.folder / self.file, IDENTITY)
        return {name: tensor.tolist() for name, tensor in tensors.items()}, state


class Batches:
    """Three batches of four images."""

    def __len__(self) -> int:
        return 3

    def epoch(self, generator: torch.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(3):
            yield torch.randn(4, 4, generator=generator), torch.zeros(4, dtype=torch.int64)


class SealedCheckpoint(Checkpoint):
    """A training state that training goes on from."""

    name, checked = "checkpoint, sealed", False

    def prepare(self) -> None:
        self._train()
        self._tensors, self._state = read_tensors(self.folder / self.file, IDENTITY)

    def change(self, rng: random.Random) -> bool:
        tensors, state = dict(self._tensors), copy.deepcopy(self._state)
        if rng.random() < 0.5:
            name = rng.choice(list(tensors))
            tensors[name] = rng.choice(list(_tensors(rng).values()))
            if rng.random() < 0.3:
                del tensors[name]
        else:
            changed = json.loads(m.json_changed(json.dumps(state).encode(), rng))
            state = changed if isinstance(changed, dict) else {"step": changed}
        write_tensors(self.folder / self.file, tensors, IDENTITY, state)
        return True

    def read(self) -> Any:
        return self._train()

    def _train(self) -> Any:
        torch.manual_seed(0)
        learner = NetworkLearner(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)))
        checkpoints = Checkpoints(self.folder / self.file, IDENTITY, every_steps=4)
        return train(learner, Batches(), RECIPE, seed=0, checkpoints=checkpoints).losses.tolist()


class Document(Target):
    """A checked JSON document of a run: its prior."""

    name, file, checked = "prior.json", "prior.json", True

    def prepare(self) -> None:
        self.space = toy_space(4)
        errors = [np.linspace(1.0, 0.5, len(group.choices)) for group in self.space.groups]
        self.directory = RunDirectory(self.folder, settings())
        self.document = self.make(errors)
        self.directory.write(self.file, self.document)

    def make(self, errors: list[Any]) -> dict[str, Any]:
        return prior_of_errors(errors, self.space, Budget(macs=0.5)).to_dict()

    def read(self) -> Any:
        return self.directory.read(self.file)


class SealedPrior(Document):
    """A prior that is sampled."""

    name, checked = "prior.json, sealed", False

    def change(self, rng: random.Random) -> bool:
        changed = json.loads(m.json_changed(json.dumps(self.document).encode(), rng))
        self.directory.write(self.file, changed if isinstance(changed, dict) else {"rows": changed})
        return True

    def read(self) -> Any:
        prior = Prior.from_dict(self.directory.read(self.file), self.space)
        return prior.sample(4, Budget(macs=0.5), np.random.default_rng(0)).widths


class SettingsFile(Target):
    """What a run is made of."""

    name, file, checked = "settings.json", "settings.json", True

    def prepare(self) -> None:
        self.document = settings().to_document()
        write_document(self.folder / self.file, self.document)

    def read(self) -> Any:
        return read_settings(self.folder)


class SealedSettings(SettingsFile):
    """Settings of a stranger."""

    name, checked = "settings.json, sealed", False

    def change(self, rng: random.Random) -> bool:
        changed = json.loads(m.json_changed(json.dumps(self.document).encode(), rng))
        write_document(self.folder / self.file, changed if isinstance(changed, dict) else {"model": changed})
        return True


class Result(Target):
    """The result of a run."""

    name, file, checked = "result.json", "result.json", True

    def prepare(self) -> None:
        write_document(self.folder / "settings.json", settings().to_document())
        self.directory = RunDirectory(self.folder, settings())
        self.document = result_document()
        self.directory.write(self.file, self.document)

    def read(self) -> Any:
        return read_result(self.folder)


class SealedResult(Result):
    """A result that is shown."""

    name, checked = "result.json, sealed", False

    def change(self, rng: random.Random) -> bool:
        changed = json.loads(m.json_changed(json.dumps(self.document).encode(), rng))
        self.directory.write(self.file, changed if isinstance(changed, dict) else {"networks": changed})
        return True

    def read(self) -> Any:
        shown = io.StringIO()
        show_result(Console(file=shown, width=120), read_result(self.folder), str(self.folder))
        shown.getvalue().encode()
        if "\x1b" in shown.getvalue():
            raise AssertionError("the terminal is steered by a file")
        return shown.getvalue()


def result_document(**changes: Any) -> dict[str, Any]:
    """The content of a `result.json`, with other figures of its networks."""
    figures = {
        "macs": 9,
        "macs_ratio": 0.5,
        "params": 7,
        "test": {"top1": 9.0},
        "test_errors": {"top1": 1.0},
        "test_images": 30,
        "by_class": {"0": [20, 12.0], "1": [10, 3.0]},
        **changes,
    }
    found = {
        "metric": "accuracy",
        "score": 9.0,
        "fresh_score": 9.0,
        "fresh_images": 9,
        "evaluations": 8,
    }
    return {
        "format": 1,
        "model": "resnet_digits",
        "data": "digits",
        "class_names": ["cat", "dog"],
        "method": "bcnet",
        "origin": "",
        "task": {"name": "classification", "headline": dataclasses.asdict(Classification.headline)},
        "budget": {"macs": 10, "params": None, "given": "0.5x MACs"},
        "widths": {"a": 3, "b": 4},
        "networks": {name: {"widths": [3, 4], **figures} for name in ("original", "uniform", "searched")},
        "search": {**found, "fresh_interval": [8.0, 10.0]},
        "groups": [{"name": name, "max_width": 6, "uniform": 4, "searched": 3} for name in "ab"],
        "epochs": {"supernet": 1, "final": 1},
        "skipped_steps": {"supernet": 0},
        "seed": 0,
        "device": {"name": "CPU", "threads": 1},
        "versions": {"torch": "2"},
        "seconds": {"supernet": 1.0},
    }


SUBJECT = Subject(
    fingerprint="x",
    images="y",
    input={"shape": [1, 8, 8], "class_names": ["0", "1"], "normaliser": None},
    task={"name": "classification", "headline": dataclasses.asdict(Classification.headline)},
    macs=1000,
    params=100,
    others={},
    original_widths=(16, 16),
    groups=(),
    fixed=(),
    layers=(),
    uncounted=(),
    live=(),
)
"""What a run works on, with costs and no groups."""


class Progress(Result):
    """What `bcnet status` says of documents that a stranger wrote."""

    name, checked, refuses = "status", False, False
    files = ("settings.json", "space.json", "result.json", "progress.json")

    def prepare(self) -> None:
        super().prepare()
        record = {"name": "supernet", "total": 8, "unit": "steps", "done": 3, "detail": ""}
        stages = {"state": "stopped", "pid": 1, "host": "h", "started": 1.0, "updated": 2.0, "stages": [record]}
        space = SUBJECT.model_dump(mode="json")
        own = settings().to_document()
        self.documents = {"settings.json": own, "space.json": space, "result.json": self.document}
        self.documents["progress.json"] = {"format": 1, **stages, "stage": "supernet", "run_left": 3.0}

    def change(self, rng: random.Random) -> bool:
        for name, document in self.documents.items():
            changed = json.loads(m.json_changed(json.dumps(document).encode(), rng)) if rng.random() < 0.5 else document
            if name == "progress.json":
                (self.folder / name).write_text(json.dumps(changed))
            elif isinstance(changed, dict):
                write_document(self.folder / name, changed)
        return True

    def read(self) -> Any:
        return json.dumps(as_document(read_status(self.folder)))
