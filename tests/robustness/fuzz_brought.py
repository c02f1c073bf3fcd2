"""Fuzzed: what people bring beside a network: trained weights, arrays of inputs, lists and folders of images."""

from __future__ import annotations

import io
import random
import shutil
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image

from bcnet.data import load
from bcnet.data.unlabelled import load_inputs
from bcnet.run.pretrained import load_pretrained
from tests.robustness.fuzz_base import Target
from tests.robustness.fuzz_files import network


class TrainedWeights(Target):
    """A training checkpoint of PyTorch: its bytes, or other contents."""

    name, file = "weights.pth", "weights.pth"

    def prepare(self) -> None:
        torch.save({"epoch": 3, "model": network().state_dict()}, self.folder / self.file)

    def change(self, rng: random.Random) -> bool:
        if rng.random() < 0.6:
            return super().change(rng)
        good = network().state_dict()
        name = rng.choice(list(good))
        changes: tuple[Callable[[], Any], ...] = (
            lambda: {"model": good, "ema": good},
            lambda: {f"{rng.choice(('module.', '_orig_mod.', 'x.'))}{key}": value for key, value in good.items()},
            lambda: good | {name: rng.choice((None, 1, "text", [1.0], good))},
            lambda: good | {name: good[name].flatten()[:1]},
            lambda: good | {name: torch.full_like(good[name].float(), float("nan"))},
            lambda: good | {name: good[name].to(rng.choice((torch.float16, torch.int8, torch.complex64)))},
            lambda: good | {name: good[name].to_sparse() if good[name].ndim else good[name]},
            lambda: good | {name: good[name].float().expand(3, *good[name].shape)},
            lambda: {key: value for key, value in good.items() if key != name},
            lambda: dict(enumerate(good.values())),
            lambda: {(name, 1): good},
            lambda: [good],
            lambda: good[name],
            lambda: {},
            lambda: {"model": {"model": {"model": good}}},
        )
        torch.save(rng.choice(changes)(), self.folder / self.file)
        return True

    def read(self) -> Any:
        model = network()
        load_pretrained(model, self.folder / self.file)
        return [float(parameter.detach().double().sum()) for parameter in model.parameters()]


class WeightsOfTensors(TrainedWeights):
    """The same in safetensors."""

    name, file = "weights.safetensors", "weights.safetensors"

    def prepare(self) -> None:
        from safetensors.torch import save_file

        save_file(network().state_dict(), self.folder / self.file)

    def change(self, rng: random.Random) -> bool:
        return Target.change(self, rng)


class InputArchive(Target):
    """An array of inputs in a NumPy archive: its bytes, or other members."""

    name, file = "inputs.npz", "inputs.npz"

    def prepare(self) -> None:
        np.savez(self.folder / self.file, inputs=np.zeros((50, 1, 4, 4), np.float32))

    def change(self, rng: random.Random) -> bool:
        if rng.random() < 0.6:
            return super().change(rng)
        kind = rng.choice(("f2", "f8", "i4", "u1", "c8", "?", "U3", "M8[s]", "O"))
        shape = rng.choice(((), (0,), (50,), (39, 1, 4, 4), (50, 0, 4), (50, 1, 4, 4)))
        arrays = {rng.choice(("inputs", "../../outside", "x" * 300)): np.zeros(shape, kind)}
        if rng.random() < 0.2:
            arrays["more"] = np.zeros(3)
        np.savez(self.folder / self.file, **arrays)
        if rng.random() < 0.2:
            with zipfile.ZipFile(self.folder / self.file, "a") as archive:
                archive.writestr(rng.choice(("notes.txt", "inner.npy", "folder/")), rng.randbytes(40))
        return True

    def read(self) -> Any:
        loaders = load_inputs(str(self.folder / self.file), None, "0..1")
        return sum(float(torch.as_tensor(batch[0]).double().sum()) for batch in loaders.train)


class InputArray(InputArchive):
    """An array of inputs in a file of its own."""

    name, file = "inputs.npy", "inputs.npy"

    def prepare(self) -> None:
        np.save(self.folder / self.file, np.zeros((50, 1, 4, 4), np.float32))

    def change(self, rng: random.Random) -> bool:
        return Target.change(self, rng)


def _picture() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 30, 60)).save(buffer, format="PNG")
    return buffer.getvalue()


class ListOfImages(Target):
    """A CSV file that lists images: its bytes, or odd values."""

    name, file = "images.csv", "images.csv"
    _ODD = ("", "nan", "-1", "1e400", "../0.png", "/etc/passwd", "a\0b", "x" * 5000, '"', "0.png", "test", "no", "é")

    def prepare(self) -> None:
        for number in range(6):
            (self.folder / f"{number}.png").write_bytes(_picture())
        self.rows = [["file_name", "label", "split"]]
        self.rows += [[f"{n}.png", "ab"[n % 2], "train" if n < 4 else "test"] for n in range(6)]
        self._write(self.rows)

    def _write(self, rows: list[list[str]]) -> None:
        text = "\n".join(",".join(row) for row in rows) + "\n"
        (self.folder / self.file).write_bytes(text.encode("utf-8", "surrogateescape"))

    def change(self, rng: random.Random) -> bool:
        if rng.random() < 0.4:
            return super().change(rng)
        rows = [list(row) for row in self.rows]
        for _ in range(rng.randint(1, 3)):
            row = rng.choice(rows)
            if rng.random() < 0.7:
                row[rng.randrange(len(row))] = rng.choice(self._ODD)
            elif rng.random() < 0.5:
                row.append(rng.choice(self._ODD))
            elif len(row) > 1:
                row.pop()
        self._write(rows)
        return rows != self.rows

    def read(self) -> Any:
        return load(f"csv:{self.folder / self.file}", image_size=8).train.labels.tolist()


class Layout(Target):
    """A folder of images: folders and files that are called, placed or linked otherwise."""

    name, file = "layout of folders", "data/train/a/0.png"
    _NAMES = (
        "Train",
        "training",
        "test",
        "val",
        "valid",
        "dev",
        "a",
        "b",
        ".hidden",
        "a b",
        "é",
        "-1",
        "images",
        "x.png",
    )

    def prepare(self) -> None:
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        for part in ("train", "test"):
            for label in "ab":
                (self.folder / "data" / part / label).mkdir(parents=True)
                for number in range(2):
                    (self.folder / "data" / part / label / f"{number}.png").write_bytes(_picture())

    def change(self, rng: random.Random) -> bool:
        self.prepare()
        for _ in range(rng.randint(1, 4)):
            self._change_one(rng)
        return True

    def _change_one(self, rng: random.Random) -> None:
        top = self.folder / "data"
        places = sorted(top.rglob("*"))
        place = rng.choice(places) if places else top
        beside = place.with_name(rng.choice(self._NAMES))
        inside = (place if place.is_dir() else place.parent) / rng.choice(self._NAMES)
        action = rng.choice(("rename", "remove", "link", "up", "folder", "file", "wrap"))
        if action == "rename" and not beside.exists():
            place.rename(beside)
        elif action == "remove":
            place.unlink() if place.is_symlink() or place.is_file() else shutil.rmtree(place)
        elif action == "link" and not beside.exists():
            beside.symlink_to(place)
        elif action == "up" and not inside.exists():
            inside.symlink_to(top, target_is_directory=True)
        elif action == "folder":
            inside.mkdir(exist_ok=True) if not inside.is_file() else None
        elif action == "file" and not inside.exists():
            inside.write_bytes(rng.choice((b"", b"text", _picture())))
        elif action == "wrap":
            wrapping = self.folder / "wrapping"
            wrapping.mkdir()
            top.rename(wrapping / rng.choice(self._NAMES))
            wrapping.rename(top)

    def read(self) -> Any:
        return load(f"imagefolder:{self.folder / 'data'}", image_size=8).train.labels.tolist()


BROUGHT: dict[type[Target], int] = {
    TrainedWeights: 300,
    WeightsOfTensors: 200,
    InputArchive: 300,
    InputArray: 200,
    ListOfImages: 300,
    Layout: 300,
}
"""How many changed files of each kind make the whole study."""
