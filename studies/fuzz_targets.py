"""What is fuzzed: every kind of file that the library reads, how it is changed, and how it is read.

A *sealed* kind is changed first and given a good checksum then, as a stranger would: it may be read or refused. A kind
with a checksum that is changed afterwards must be refused, or be read as what it was.
"""

from __future__ import annotations

import copy
import io
import json
import random
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import mutations as m
import numpy as np
import torch
from PIL import Image
from rich.console import Console
from torch import nn

import bcnet
from bcnet.cli.show import show_result
from bcnet.data import load
from bcnet.pipeline import Settings
from bcnet.pipeline.result_file import read_result
from bcnet.pipeline.run_directory import RunDirectory, read_settings, write_document
from bcnet.pipeline.settings import make_settings
from bcnet.runs import read_status
from bcnet.runs.status import as_document
from bcnet.searchers import Candidate, EvaluationStore
from bcnet.searchers.prior import Prior, prior_of_errors
from bcnet.space import Budget, WidthSpace
from bcnet.supernet import describe, rebuild
from bcnet.testing import toy_space
from bcnet.train import Checkpoints, NetworkTrainee, Recipe, load_recipe, read_tensors, train, write_tensors

IDENTITY = {"run": "fuzz", "stage": "supernet"}
RECIPE = Recipe(lr=0.1, batch_size=4, epochs=2)
SMALL = {"population": 4, "generations": 2, "num_choices": 4, "threads": 1, "device": "cpu"}


def network() -> nn.Module:
    """A plain network with two width groups."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )


def settings() -> Settings:
    """Those of the run whose files are changed."""
    return make_settings(model="resnet_digits", data="digits", budget_macs=0.5, supernet=RECIPE, final=RECIPE, **SMALL)


class Target(ABC):
    """One kind of file. `file` is its path in the folder that `change` fills and `read` reads."""

    name: ClassVar[str]
    file: ClassVar[str]
    checked: ClassVar[bool] = False
    refuses: ClassVar[bool] = True  # whether there is anything that it refuses: a status tells what is wrong instead
    ways: ClassVar[tuple[m.Mutation, ...]] = m.BYTES

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        torch.manual_seed(0)
        self.prepare()
        self.original = (folder / self.file).read_bytes()
        self.value = self.read()

    @abstractmethod
    def prepare(self) -> None:
        """Write the good file, and what it needs beside it."""

    @abstractmethod
    def read(self) -> Any:
        """The file's content as the library reads it, comparable with `==`."""

    def change(self, rng: random.Random) -> bool:
        """Write a changed copy; whether it differs."""
        content = rng.choice(self.ways)(self.original, rng)
        (self.folder / self.file).write_bytes(content)
        return content != self.original

    def as_it_was(self, value: Any) -> bool:
        """Whether a value read from a changed file is what the good file says."""
        return bool(value == self.value)


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
        trainee = NetworkTrainee(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)))
        checkpoints = Checkpoints(self.folder / self.file, IDENTITY, every_steps=4)
        return train(trainee, Batches(), RECIPE, seed=0, checkpoints=checkpoints).losses.tolist()


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
        self.document = settings().model_dump(mode="json")
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
        write_document(self.folder / "settings.json", settings().model_dump(mode="json"))
        self.directory = RunDirectory(self.folder, settings())
        self.document = _result()
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


def _result() -> dict[str, Any]:
    figures = {"macs": 9, "macs_ratio": 0.5, "params": 7, "test_top1": 9.0, "test_top5": 9.5, "test_images": 30}
    found = {"metric": "accuracy", "score": 9.0, "fresh_score": 9.0, "fresh_images": 9, "evaluations": 8}
    return {
        "format": 1,
        "model": "resnet_digits",
        "data": "digits",
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


class Progress(Result):
    """What `bcnet status` says of documents that a stranger wrote."""

    name, checked, refuses = "status", False, False
    files = ("settings.json", "space.json", "result.json", "progress.json")

    def prepare(self) -> None:
        super().prepare()
        record = {"name": "supernet", "total": 8, "unit": "steps", "done": 3, "detail": ""}
        stages = {"state": "stopped", "pid": 1, "host": "h", "started": 1.0, "updated": 2.0, "stages": [record]}
        space = {"macs": 10, "params": 7, "fingerprint": "x"}
        own = settings().model_dump(mode="json")
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


class Architecture(Target):
    """An architecture, rebuilt."""

    name, file = "architecture.json", "architecture.json"
    ways = (*m.BYTES, *[m.json_changed] * 7)

    def prepare(self) -> None:
        model = network()
        space = WidthSpace.trace(model, torch.zeros(2, 1, 8, 8), num_choices=4)
        (self.folder / self.file).write_text(json.dumps(describe(model, space, space.full)))

    def read(self) -> Any:
        return [tuple(p.shape) for p in rebuild(self.folder / self.file, network).parameters()]


class Exported(Target):
    """A network exported to safetensors, loaded with the caller's factory."""

    name, file = "export.safetensors", "export.safetensors"

    def prepare(self) -> None:
        from safetensors.torch import save

        model = network()
        space = WidthSpace.trace(model, torch.zeros(2, 1, 8, 8), num_choices=4)
        facts = {"shape": [1, 8, 8], "class_names": ["a", "b", "c"], "normaliser": {"mean": [0.5], "std": [0.5]}}
        self.notes = {"input": facts, "architecture": describe(model, space, space.full), "model": "Sequential 1"}
        self.weights = dict(model.state_dict())
        (self.folder / self.file).write_bytes(save(self.weights, self._metadata(self.notes)))

    def _metadata(self, notes: Mapping[str, Any]) -> dict[str, str]:
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in notes.items()}

    def change(self, rng: random.Random) -> bool:
        from safetensors.torch import save

        if rng.random() < 0.5:
            return super().change(rng)
        notes = json.loads(m.json_changed(json.dumps(self.notes).encode(), rng))
        notes = notes if isinstance(notes, dict) else {"input": notes}
        text = {k: v.encode(errors="replace").decode() for k, v in self._metadata(notes).items()}
        keys = {k.encode(errors="replace").decode(): v for k, v in text.items()}
        (self.folder / self.file).write_bytes(save(self.weights, keys))
        return True

    def read(self) -> Any:
        return [tuple(p.shape) for p in bcnet.load(self.folder / self.file, network).parameters()]


class NamedExport(Exported):
    """An exported network whose file names the code that would make it."""

    name = "export.safetensors, naming code"

    def change(self, rng: random.Random) -> bool:
        from safetensors.torch import save

        names = (
            "no_such_module:factory",
            "os:system",
            "shutil:rmtree",
            "torchvision:none",
            "timm:none",
            "subprocess:run",
        )
        notes = self._metadata(self.notes | {"model": rng.choice(names)})
        (self.folder / self.file).write_bytes(save(self.weights, notes))
        return True

    def read(self) -> Any:
        factory = None if (self.folder / self.file).read_bytes() != getattr(self, "original", None) else network
        return [tuple(p.shape) for p in bcnet.load(self.folder / self.file, factory).parameters()]


class RecipeFile(Target):
    """A recipe in YAML."""

    name, file = "recipe.yaml", "recipe.yaml"
    ways = (*m.BYTES, *[m.yaml_changed] * 7)

    def prepare(self) -> None:
        lines: tuple[str, ...] = ("lr: 0.1", "batch_size: 128", "epochs: 40", "weight_decay: 1e-4", "clip_norm: null")
        schedule = (
            "schedule:",
            "  kind: step",
            "  milestones: [10, 20]",
            "distillation: {temperature: 4, weight: 0.5}",
        )
        (self.folder / self.file).write_text("\n".join((*lines, *schedule)) + "\n")

    def read(self) -> Any:
        return load_recipe(self.folder / self.file)


class Evaluations(Target):
    """The evaluations of a search. Rows missing at the end are scored again, so that the beginning is as it was."""

    name, file, checked = "evaluations.sqlite", "evaluations.sqlite", True
    ways = (*m.BYTES, *[m.page_changed] * 7)

    def prepare(self) -> None:
        self.space, self.database = toy_space(4), self.folder / "evaluations.sqlite"
        rng = np.random.default_rng(0)
        with self._store() as store:
            for _ in range(60):
                widths = tuple(int(rng.choice(group.choices)) for group in self.space.groups)
                if widths not in store.scores():
                    store.add(Candidate(widths, float(rng.random()), self.space.cost(widths)))

    def _store(self) -> EvaluationStore:
        return EvaluationStore(self.database, self.space, "weights")

    def change(self, rng: random.Random) -> bool:
        for file in self.folder.glob("*.sqlite-*"):
            file.unlink()
        if rng.random() < 0.7:
            return super().change(rng)
        self.database.write_bytes(self.original)
        m.sql_changed(self.database, rng)
        return self.database.read_bytes() != self.original

    def read(self) -> Any:
        with self._store() as store:
            return store.evaluations

    def as_it_was(self, value: Any) -> bool:
        return bool(value == self.value[: len(value)])


class Journal(Evaluations):
    """A journal that a killed process left, beside the evaluations that it was about to change."""

    name, file = "evaluations.sqlite-journal", "evaluations.sqlite-journal"
    ways = m.BYTES

    def prepare(self) -> None:
        super().prepare()
        with closing(sqlite3.connect(self.database)) as connection:
            connection.execute("PRAGMA cache_size=1")  # so that changed pages reach the file before the end
            connection.execute("UPDATE evaluations SET score = score + 1")
            connection.execute("CREATE TABLE filler AS SELECT randomblob(9000) AS x FROM evaluations")
            self.half_changed = self.database.read_bytes()
            journal = (self.folder / self.file).read_bytes()
            connection.rollback()
        self.database.write_bytes(self.half_changed)
        (self.folder / self.file).write_bytes(journal)

    def change(self, rng: random.Random) -> bool:
        self.database.write_bytes(self.half_changed)
        return Target.change(self, rng)


def _encoded(kind: str, mode: str = "RGB") -> bytes:
    pixels = np.random.default_rng(0).integers(255, size=(12, 12, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, format=kind)
    return buffer.getvalue()


class Picture(Target):
    """An image file in a folder of images."""

    name, file = "image", "data/train/a/0.png"
    kinds = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", "EPS")

    def prepare(self) -> None:
        self.sources = [_encoded(kind) for kind in self.kinds]
        for part in ("train", "test"):
            for label in "ab":
                (self.folder / "data" / part / label).mkdir(parents=True)
                for number in range(2):
                    (self.folder / "data" / part / label / f"{number}.png").write_bytes(self.sources[0])

    def change(self, rng: random.Random) -> bool:
        self.original = rng.choice(self.sources)
        return super().change(rng)

    def read(self) -> Any:
        return load(f"imagefolder:{self.folder / 'data'}", image_size=8).train.pixels.sum().item()


class Table(Target):
    """A parquet file of images: its bytes, or columns of other types and values."""

    name, file = "table.parquet", "train.parquet"

    def prepare(self) -> None:
        self._write([{"bytes": self._png(), "path": None}] * 6, [0, 1, 0, 1, 0, 1])
        shutil.copy(self.folder / self.file, self.folder / "test.parquet")

    def _png(self) -> bytes:
        return _encoded("PNG")

    def _write(self, images: list[Any], labels: list[Any]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"image": pa.array(images), "label": pa.array(labels)}), self.folder / self.file)

    def change(self, rng: random.Random) -> bool:
        if rng.random() < 0.6:
            return super().change(rng)
        images: Callable[[], list[Any]] = rng.choice(
            (
                lambda: [{"bytes": None, "path": "/etc/passwd"}] * 6,
                lambda: [{"bytes": None, "path": "../../../../etc/hostname"}] * 6,
                lambda: [{"bytes": None, "path": "/dev/zero"}] * 6,
                lambda: [{"bytes": None, "path": "a\0b"}] * 6,
                lambda: [rng.randbytes(50)] * 6,
                lambda: [None] * 6,
                lambda: ["text"] * 6,
                lambda: [[1, 2, 3]] * 6,
                lambda: [{"bytes": [1, 2], "path": 3}] * 6,
                lambda: [{"other": 1}] * 6,
                lambda: [{"bytes": self._png(), "path": None}] * 6,
            )
        )
        labels = rng.choice(
            ([0, 1] * 3, [-1] * 6, [2**62] * 6, [None] * 6, ["a"] * 6, [0.5] * 6, [True] * 6, [[0]] * 6, [10**9, 0] * 3)
        )
        self._write(images(), labels)
        return True

    def read(self) -> Any:
        return load(f"parquet:{self.folder}").train.labels.tolist()


TARGETS: Mapping[type[Target], int] = {
    Checkpoint: 600,
    SealedCheckpoint: 400,
    Document: 500,
    SealedPrior: 400,
    SettingsFile: 300,
    SealedSettings: 400,
    Result: 300,
    SealedResult: 300,
    Progress: 300,
    Architecture: 400,
    Exported: 300,
    NamedExport: 50,
    RecipeFile: 500,
    Evaluations: 600,
    Journal: 200,
    Picture: 200,
    Table: 150,
}
"""How many changed files of each kind make the whole study."""
