"""Is the arena that is predicted the one that tflite-micro takes? Nine kinds of networks, at random widths.

Each network is read once (`bcnet.tflite.read_graph`). Then networks of random widths, from a sixth of each group on,
are converted to int8 and loaded by tflite-micro. A row for each: the arena predicted and told, the length of the file
predicted and found, and the plain peak of the activations (`memory:int8`).

    python -m studies.arena [--quick] [--draws 4]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor, nn

import bcnet
from bcnet.costs import ConvertedGraph
from bcnet.models import create
from bcnet.space import WidthSpace
from bcnet.supernet import build
from bcnet.tflite import Converter, disturb, is_installed, read_graph
from studies.keywords.sounds import DepthwiseSeparable
from studies.shared.cells import Cell, run_cells
from studies.shared.provenance import ROOT

_SAMPLES = 4


def convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution with batch norm and ReLU."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


class Chain(nn.Module):
    """Convolutions one after the other, and a pooled head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(convolution(c, o, stride=s) for c, o, s in ((3, 16, 1), (16, 32, 2), (32, 48, 2)))
        )
        self.head = nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean((2, 3)))


class Inverted(nn.Module):
    """Inverted residuals as in MobileNetV2."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = convolution(3, 16, stride=2)
        self.blocks = nn.ModuleList(
            nn.Sequential(convolution(16, 64, 1), convolution(64, 64, groups=64), nn.Conv2d(64, 16, 1))
            for _ in range(2)
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean((2, 3)))


class Dense(nn.Module):
    """Concatenations as in DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = convolution(3, 16), convolution(19, 16), convolution(35, 24)
        self.head = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x, self.one(x)], 1)
        x = torch.cat([x, self.two(x)], 1)
        return self.head(self.three(x).mean((2, 3)))


class Squeeze(nn.Module):
    """Channels weighted by two small layers, as in squeeze-and-excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = convolution(3, 32), convolution(32, 32, stride=2)
        self.down, self.up = nn.Conv2d(32, 16, 1), nn.Conv2d(16, 32, 1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = x * self.up(self.down(x.mean((2, 3), keepdim=True)).relu()).sigmoid()
        return self.head(self.last(x).mean((2, 3)))


class Flattened(nn.Module):
    """Pooling and a flatten before linear layers, as in LeNet."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(convolution(1, 16, 5), nn.MaxPool2d(2), convolution(16, 32, 5), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "chain": (Chain, (3, 32, 32)),
    "residual, ResNet-20": (lambda: create("resnet20", 10).build(), (3, 32, 32)),
    "depthwise-separable, DS-CNN": (lambda: DepthwiseSeparable(channels=64), (1, 49, 10)),
    "inverted residuals": (Inverted, (3, 32, 32)),
    "concatenations": (Dense, (3, 16, 16)),
    "squeeze-and-excitation": (Squeeze, (3, 32, 32)),
    "flatten, LeNet": (Flattened, (1, 28, 28)),
    "VGG": (lambda: create("vgg_digits").build(), create("vgg_digits").input_size),
    "small residual": (lambda: create("resnet_digits").build(), create("resnet_digits").input_size),
}


def main(
    quick: Annotated[bool, typer.Option("--quick", help="One network; writes results/quick_*.")] = False,
    draws: Annotated[int, typer.Option(help="Widths of each network.")] = 4,
    out: Annotated[Path, typer.Option(help="Folder of the CSV file.")] = ROOT / "results",
) -> None:
    """Compute the rows that are missing."""
    if not is_installed():
        raise SystemExit("skipped: TFLite files are made by litert-torch, which is not installed (bcnet[litert])")
    names = ["flatten, LeNet"] if quick else list(NETWORKS)
    cells = [
        Cell({"network": name, "draw": draw}, lambda a=(name, draw): _row(*a))
        for name in names
        for draw in range(1 if quick else draws)
    ]
    with tempfile.TemporaryDirectory() as logs:
        failed = run_cells(cells, out / ("quick_arena.csv" if quick else "arena.csv"), Path(logs))
    raise typer.Exit(bool(failed))


_READ: dict[str, tuple[nn.Module, WidthSpace, ConvertedGraph]] = {}


def _row(name: str, draw: int) -> dict[str, object]:
    make, shape = NETWORKS[name]
    example = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    if name not in _READ:
        torch.manual_seed(0)
        network = make().eval()
        space = bcnet.trace(network, example, multiple_of=1)
        _READ[name] = (network, space, read_graph(network, example, space=space))
    network, space, graph = _READ[name]
    rng = np.random.default_rng(draw)
    widths = tuple(int(rng.integers(max(2, group.max_width // 6), group.max_width + 1)) for group in space.groups)
    samples = torch.randn(_SAMPLES, 1, *shape, generator=torch.Generator().manual_seed(draw))
    with Converter() as converter:
        narrow = disturb(build(network, space, widths).eval())
        content = converter.convert(narrow, example[:1], samples)
        told = converter.describe(content)
    row = np.array([widths])
    return {
        "widths": " ".join(map(str, widths)),
        "arena": int(graph.arena(row)[0]),
        "arena_told": told["arena"]["total"],
        "flash": int(graph.file(row)[0]),
        "file_bytes": told["file"],
        "memory_int8": int(bcnet.Memory("int8").values(space, row)[0]),
        "tflite_micro": graph.versions["tflite-micro"],
    }


if __name__ == "__main__":
    typer.run(main)
