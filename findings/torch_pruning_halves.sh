#!/bin/sh
# Torch-Pruning prunes too much, breaks the network or fails where a layer's two halves meet the same other channels.
#
# torch-pruning 1.6.1 with torch 2.13.0.
#
# Code that cuts a layer's output in half and lets both halves meet one other layer is common: a scale and a shift (FiLM),
# two halves that are added to functions of each other (reversible networks), a list of halves that grows (C2f of YOLOv8).
# A channel of the other layer then stands for two of the cut one. The dependency graph follows one half at a time.
#
# Seen with pruning_ratio=0.5, magnitude importance: behind scale and shift the layer keeps 7 of 48 channels instead of
# 24, and the network runs; the reversible block's stem keeps 41 of 64 channels while its functions still read 32, so
# that the pruned network fails when it is called; for the list of halves, pruning ends with an IndexError.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy torch-pruning==1.6.1
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")

import torch_pruning


def conv(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class ScaleAndShift(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.both, self.layer = conv(3, 32), nn.Linear(3, 96), nn.Conv2d(32, 48, 3, padding=1)
        self.head = nn.Linear(48, 5)

    def forward(self, x):
        scale, shift = self.both(x.mean((2, 3)))[..., None, None].chunk(2, 1)
        return self.head(torch.relu(self.layer(self.stem(x)) * (1 + scale) + shift).mean((2, 3)))


class Reversible(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.first, self.second, self.head = conv(3, 64), conv(32, 32), conv(32, 32), nn.Linear(64, 5)

    def forward(self, x):
        a, b = self.stem(x).chunk(2, 1)
        a = a + self.first(b)
        b = b + self.second(a)
        return self.head(torch.cat([a, b], 1).mean((2, 3)))


class ListOfHalves(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.last, self.head = conv(3, 64), conv(128, 48), nn.Linear(48, 5)
        self.blocks = nn.ModuleList([conv(32, 32), conv(32, 32)])

    def forward(self, x):
        parts = list(self.stem(x).chunk(2, 1))
        parts.extend(block(parts[-1]) for block in self.blocks)
        return self.head(self.last(torch.cat(parts, 1)).mean((2, 3)))


def outcome(make):
    torch.manual_seed(0)
    network, x = make().eval(), torch.randn(2, 3, 16, 16)
    importance = torch_pruning.importance.MagnitudeImportance(p=2)
    try:
        pruner = torch_pruning.pruner.MagnitudePruner(
            network, x, importance=importance, pruning_ratio=0.5, ignored_layers=[network.head]
        )
        pruner.step()
    except IndexError:
        return "pruning fails"
    kept = len((network.layer if make is ScaleAndShift else network.stem[0]).weight)
    try:
        network(x)
    except RuntimeError:
        return f"{kept} channels, fails when called"
    return f"{kept} channels, runs"


found = {make.__name__: outcome(make) for make in (ScaleAndShift, Reversible, ListOfHalves)}
for name, text in found.items():
    print(f"{name}: {text}")
expected = ["7 channels, runs", "41 channels, fails when called", "pruning fails"]
sys.exit(list(found.values()) != expected)
PYTHON
