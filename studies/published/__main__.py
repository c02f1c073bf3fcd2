"""Widths that authors published, counted on the networks they are for, and drawn beside Uniform of the same cost.

    python -m studies.published

writes `results/published_widths.csv`, a row for each network and budget, and a picture for each network in `docs/`.
Nothing is trained; needs torchvision and the extra `studies`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure

from bcnet import Budget, WidthSpace
from bcnet.models import create, published
from studies.shared.provenance import ROOT, provenance
from studies.shared.torchvision_here import let_torchvision_import

OUT = ROOT / "results" / "published_widths.csv"
PICTURES = ROOT / "docs"
NETWORKS = {  # model -> what was published for it; AutoSlim's MobileNetV2 are slices of one 1.5 times as wide
    "vgg19": {"vgg19_cifar10": "BCNet"},
    "mobilenetv2": {"mobilenetv2_cifar10": "BCNet"},
    "torchvision:resnet50": {"resnet50_imagenet_bcnet": "BCNet", "resnet50_imagenet": "AutoSlim"},
    "torchvision:mobilenet_v2": {"mobilenetv2_imagenet_bcnet": "BCNet"},
}


@dataclass(frozen=True)
class Widths:
    """Published widths of a variant, beside the Uniform network of at most as many multiply-adds."""

    author: str
    variant: str
    widths: tuple[int, ...]
    uniform: tuple[int, ...]
    macs: int
    params: int
    uniform_macs: int
    uniform_params: int


def counted(model: str) -> tuple[WidthSpace, list[Widths]]:
    """The space of a network, and all that was published for it, the largest first."""
    spec = create(model)
    network = spec.build()
    space = WidthSpace.trace(network, torch.zeros(2, *spec.input_size), multiple_of=1)
    found = []
    for entry, author in NETWORKS[model].items():
        for variant in published.table()[entry]:
            widths = published.widths(space, network, entry, variant)
            cost = space.cost(widths)
            uniform = space.uniform(Budget(macs=cost.macs))
            even = space.cost(uniform)
            found.append(Widths(author, variant, widths, uniform, cost.macs, cost.params, even.macs, even.params))
    return space, sorted(found, key=lambda one: -one.macs)


def draw(model: str, space: WidthSpace, every: Sequence[Widths], path: Path) -> None:
    """Kept ratio of every group of each variant as bars, Uniform as a line."""
    columns = 2 if len(every) > 1 else 1
    rows = math.ceil(len(every) / columns)
    picture = Figure(figsize=(5.2 * columns, 1.75 * rows + 0.6), layout="constrained")
    axes = picture.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
    full = space.original_widths
    for axis, one in zip(axes, every, strict=False):
        places = range(len(full))
        axis.bar(places, [w / f for w, f in zip(one.widths, full, strict=True)], width=0.85, color="tab:blue")
        uniform = [w / f for w, f in zip(one.uniform, full, strict=True)]
        axis.step(places, uniform, where="mid", color="tab:orange", linewidth=1.4)
        axis.set_title(f"{one.author}, published:{one.variant}, {one.macs / 1e6:,.0f}M MACs", fontsize=9)
        axis.set_ylim(0, 1.04)
    for axis in list(axes)[len(every) :]:
        axis.set_visible(False)
    picture.suptitle(f"{model}: kept ratio of every width group, in network order (line: Uniform)", fontsize=10)
    picture.savefig(path, metadata={"Date": None})


def main() -> None:
    """Count, write and draw all of them."""
    let_torchvision_import()
    rows = []
    for model in NETWORKS:
        space, every = counted(model)
        reference = space.reference
        rows += [
            {
                "model": model,
                "author": one.author,
                "variant": one.variant,
                "macs": one.macs,
                "macs_ratio": f"{one.macs / reference.macs:.4f}",
                "params": one.params,
                "params_ratio": f"{one.params / reference.params:.4f}",
                "uniform_macs": one.uniform_macs,
                "uniform_params": one.uniform_params,
                "widths": " ".join(map(str, one.widths)),
                "uniform_widths": " ".join(map(str, one.uniform)),
                **provenance(),
            }
            for one in every
        ]
        draw(model, space, every, PICTURES / f"published_{model.partition(':')[2] or model}.svg")
        print(f"{model}: {len(every)}", flush=True)
    with OUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
