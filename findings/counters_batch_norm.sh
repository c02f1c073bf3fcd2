#!/bin/sh
# One convolution with its batch norm has five different counts in five counters.
#
# thop 0.1.1.post2209072238, torchprofile 0.1.0, torchinfo 1.8.0, Torch-Pruning 1.6.1, fvcore 0.1.5.post20221221,
# torch 2.13.0.
#
# A batch norm in eval mode is folded into the convolution before it by every deployment engine, and then costs nothing.
# Counters give it 0, 1/2, 1 or 2 operations for each element, or one for each parameter; none says so beside the total.
# A depthwise network, whose convolutions are cheap, is therefore at another share of the original in each of them: two
# tools that both say "half the multiply-adds" mean different networks.
#
# Seen, for 3 -> 8 channels, a 3x3 kernel and a 16x16 map (the convolution alone: 55,296): torch's FlopCounterMode 55,296,
# torchinfo 55,312, torchprofile 57,344, fvcore and Torch-Pruning 59,392, thop 63,488.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy thop==0.1.1.post2209072238 torchprofile==0.1.0 torchinfo==1.8.0 torch-pruning==1.6.1 \
    fvcore==0.1.5.post20221221
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")

import fvcore.nn
import thop
import torch_pruning
import torchinfo
import torchprofile
from torch.utils.flop_counter import FlopCounterMode

network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)).eval()
x = torch.randn(1, 3, 16, 16)
with FlopCounterMode(display=False) as counter, torch.no_grad():
    network(x)
found = {
    "torch FlopCounterMode / 2": counter.get_total_flops() // 2,
    "torchinfo": int(torchinfo.summary(network, input_data=x, verbose=0).total_mult_adds),
    "torchprofile": int(torchprofile.profile_macs(network, x)),
    "fvcore": int(fvcore.nn.FlopCountAnalysis(network, x).total()),
    "Torch-Pruning": int(torch_pruning.utils.count_ops_and_params(network, x)[0]),
    "thop": int(thop.profile(network, inputs=(x,), verbose=False)[0]),
}
for name, value in found.items():
    print(f"{name}: {value:,}")
sys.exit(list(found.values()) != [55_296, 55_312, 57_344, 59_392, 59_392, 63_488])
PYTHON
