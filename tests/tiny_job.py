"""A job that takes a second or two: three kinds of stripes on 8x8 images, a network of two groups."""

from __future__ import annotations

import importlib
import sqlite3
import threading
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

import bcnet
from bcnet import BCNet, Budget, DataSet, Recipe, Reporter, Trainings
from bcnet.data import Augmentation
from bcnet.files.documents import read_document
from bcnet.space import tracing

RECIPE = Recipe(lr=0.05, batch_size=16, epochs=2, precision="fp32")
NETWORKS = ("original", "uniform", "final")
WEIGHTS = ("supernet", "records", "counts", *NETWORKS, *(f"{name}_losses" for name in NETWORKS))


class TinyNetwork(nn.Module):
    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.second = nn.Sequential(
            nn.Conv2d(channels, 12, 3, stride=2), nn.BatchNorm2d(12), nn.ReLU(), nn.Dropout(0.1)
        )
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(x)).mean((2, 3)))


def tiny_data(count: int = 120) -> DataSet:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 3
    pixels = torch.randint(100, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)
    pixels[labels == 1, :, ::2] += 100
    pixels[labels == 2, :, :, ::2] += 100
    return DataSet.from_tensors(
        (pixels[30:], labels[30:]), (pixels[:30], labels[:30]), name="stripes", augmentation=Augmentation(padding=1)
    )


def supernet_method(**fields) -> BCNet:
    """A small search on a supernet, for what is special to one."""
    return BCNet(**({"population": 4, "generations": 2, "parents": 2} | fields))


def tiny_search(
    folder, *, model=TinyNetwork, data=None, training=None, space=None, options=None, report=False, **changes
):
    """A small run of the default method; `training` are changes to the tiny recipe, or another.

    Times, report and another trace of the same network, most of the seconds that it takes, are left out unless
    `report` asks for them.
    """
    recipe = training if isinstance(training, Recipe) else RECIPE.with_changes(training or {})
    asked = {"budget": Budget(macs=0.5), "method": Trainings(effort="small"), "progress": False} | changes
    with nullcontext() if report else quick():
        return bcnet.search(
            model,
            tiny_data() if data is None else data,
            run_dir=folder,
            training=recipe,
            space={"num_choices": 4} | (space or {}),
            options={"threads": 1} | (options or {}),
            **asked,
        )


_SEARCH = importlib.import_module("bcnet.api.search")
_FINISH = _SEARCH.finish
_REPORT_OUTCOME = _SEARCH.report_outcome
_TRACE = tracing.trace
_LOCK = threading.Lock()
_INSIDE = []  # an entry for each thread in the block
_SPACES = {}


@contextmanager
def quick():
    """Searches in the block write no report, and trace the tiny network once for all; threads may share the block."""
    with _LOCK:
        _INSIDE.append(None)
        _SEARCH.finish = _SEARCH.report_outcome = lambda outcome, *_: outcome
        tracing.trace = _trace_once
    try:
        yield
    finally:
        with _LOCK:
            _INSIDE.pop()
            if not _INSIDE:
                _SEARCH.finish = _FINISH
                _SEARCH.report_outcome = _REPORT_OUTCOME
                tracing.trace = _TRACE


def _trace_once(model, example, options):
    if type(model) is not TinyNetwork:
        return _TRACE(model, example, options)
    shapes = [(tensor.shape, tensor.dtype) for tensor in example.args]
    key = repr((model.first[0].out_channels, shapes, options))
    if key not in _SPACES:
        _SPACES[key] = _TRACE(model, example, options)
    return _SPACES[key]


def tiny_supernet_search(folder, **changes):
    """The same on a supernet."""
    return tiny_search(folder, **({"method": supernet_method()} | changes))


def traces(folder):
    """Everything a run with a report leaves that must not depend on interruptions."""
    result = read_document(folder / "result.json")
    result.pop("seconds")
    with sqlite3.connect(folder / "evaluations.sqlite") as connection:
        rows = connection.execute("SELECT * FROM evaluations ORDER BY position").fetchall()
    connection.close()
    return {name: (folder / f"{name}.safetensors").read_bytes() for name in WEIGHTS} | {
        "result": result,
        "rows": rows,
        "prior": (folder / "prior.json").read_bytes(),
        "picture": (folder / "ratios.svg").read_bytes(),
    }


class StoppedError(Exception):
    pass


class Recorder(Reporter):
    """Remembers stages, and stops the run when a stage has done some units."""

    def __init__(self, stop: tuple[str, int] | None = None) -> None:
        self.stages: list[str] = []
        self.stop = stop

    def stage(self, name, total, unit):
        @contextmanager
        def inside():
            self.stages.append(name)

            def advance(done, detail):
                if self.stop == (name, done):
                    raise StoppedError

            yield advance

        return inside()


class Notes(Recorder):
    """Remembers what is said, too."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text):
        self.notes.append(text)
