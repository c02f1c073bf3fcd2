#!/bin/sh
# Four counters take a strided transposed convolution for stride squared times its work.
#
# thop 0.1.1.post2209072238, torchprofile 0.1.0, torchinfo 1.8.0, Torch-Pruning 1.6.1, fvcore 0.1.5.post20221221,
# torch 2.13.0.
#
# A transposed convolution multiplies every *input* position with the kernel: 4 -> 6 channels, a 4x4 kernel and stride 2
# on an 8x8 map take 4 * 6 * 16 * 64 = 24,576 multiply-adds, which is what a direct count of the inner loop gives. Counters
# that multiply the *output* positions instead report stride squared times as much. For a pruner under a budget this means
# that networks with upsampling end at a fraction of the size that was asked for.
#
# Seen: the loop, torch's FlopCounterMode and fvcore 24,576; thop, torchprofile, torchinfo and Torch-Pruning 98,304.
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

layer = nn.ConvTranspose2d(4, 6, kernel_size=4, stride=2, padding=1, bias=False).eval()
x = torch.randn(1, 4, 8, 8)
loop = sum(1 for _ in range(8 * 8) for _ in range(4 * 4) for _ in range(4) for _ in range(6))
with FlopCounterMode(display=False) as counter, torch.no_grad():
    layer(x)
found = {
    "inner loop": loop,
    "torch FlopCounterMode / 2": counter.get_total_flops() // 2,
    "fvcore": int(fvcore.nn.FlopCountAnalysis(layer, x).total()),
    "thop": int(thop.profile(layer, inputs=(x,), verbose=False)[0]),
    "torchprofile": int(torchprofile.profile_macs(layer, x)),
    "torchinfo": int(torchinfo.summary(layer, input_data=x, verbose=0).total_mult_adds),
    "Torch-Pruning": int(torch_pruning.utils.count_ops_and_params(layer, x)[0]),
}
for name, value in found.items():
    print(f"{name}: {value:,}")
sys.exit(list(found.values()) != [24_576] * 3 + [98_304] * 4)
PYTHON
