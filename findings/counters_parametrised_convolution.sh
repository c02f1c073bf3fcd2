#!/bin/sh
# thop, ptflops and torchinfo find nothing in a convolution with weight normalisation.
#
# thop 0.1.1.post2209072238, ptflops 0.7.5 (backend "pytorch"), torchinfo 1.8.0, torch 2.13.0.
#
# torch.nn.utils.parametrizations makes a new class of the layer, ParametrizedConv2d, and moves its weight into a submodule.
# thop and ptflops look a layer's rule up by its exact class, and torchinfo reads the layer's own parameters: all three
# count 0, without a warning. A subclass of Conv2d of one's own, as timm has for padding and standardised weights, is 0 to
# the first two as well. Counters that trace operators (ptflops by its backend "aten", torch's own) count all of them.
#
# Seen, for 8 -> 8 channels, a 3x3 kernel and a 16x16 map, 147,456 multiply-adds: all agree on the plain layer; with weight
# normalisation thop, ptflops and torchinfo say 0; for a subclass thop and ptflops say 0.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy torchinfo==1.8.0
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    thop==0.1.1.post2209072238 ptflops==0.7.5
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys
import warnings

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.flop_counter import FlopCounterMode

warnings.simplefilter("ignore")

import ptflops
import thop
import torchinfo


class OwnConv2d(nn.Conv2d):
    pass


def traced(layer):
    counter = FlopCounterMode(display=False)
    with counter:
        layer(torch.randn(1, 8, 16, 16))
    return counter.get_total_flops() // 2


def by_ptflops(layer, backend):
    return ptflops.get_model_complexity_info(
        layer, (8, 16, 16), as_strings=False, print_per_layer_stat=False, backend=backend
    )[0]


layers = {
    "plain": nn.Conv2d(8, 8, 3, padding=1, bias=False),
    "weight normalisation": weight_norm(nn.Conv2d(8, 8, 3, padding=1, bias=False)),
    "subclass": OwnConv2d(8, 8, 3, padding=1, bias=False),
}
seen = {}
for name, layer in layers.items():
    layer = nn.Sequential(layer).eval()
    counts = {
        "torch": traced(layer),
        "ptflops aten": by_ptflops(layer, "aten"),
        "ptflops pytorch": by_ptflops(layer, "pytorch"),
        "torchinfo": torchinfo.summary(layer, (1, 8, 16, 16), verbose=0).total_mult_adds,
        "thop": thop.profile(layer, (torch.randn(1, 8, 16, 16),), verbose=False)[0],
    }
    seen[name] = [int(count) for count in counts.values()]
    print(f"{name}: " + ", ".join(f"{counter} {int(count):,}" for counter, count in counts.items()))
full = 147_456
expected = {"plain": [full] * 5, "weight normalisation": [full, full, 0, 0, 0], "subclass": [full, full, 0, full, 0]}
sys.exit(seen != expected)
PYTHON
