"""Fuzzed: recipes, architectures, exported networks, evaluations, images and tables."""

from __future__ import annotations

import io
import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

import bcnet
from bcnet.data import load
from bcnet.searchers import Candidate, EvaluationStore
from bcnet.space import WidthSpace
from bcnet.supernet import describe, rebuild
from bcnet.testing import toy_space
from bcnet.train import load_recipe
from tests.robustness import mutations as m
from tests.robustness.fuzz_base import Target


def network() -> nn.Module:
    """A plain network with two width groups."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )


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
            drawn = [tuple(int(rng.choice(group.choices)) for group in self.space.groups) for _ in range(60)]
            for widths in dict.fromkeys(drawn):
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
