#!/bin/sh
# Counters of multiply-adds give an LSTM from nothing to 35 times its products; a GRU gets other errors.
#
# torch 2.13.0, thop 0.1.1.post2209072238, torchprofile 0.1.0, torchinfo 1.8.0, Torch-Pruning 1.6.1,
# fvcore 0.1.5.post20221221.
#
# torch's own FlopCounterMode counts a GRU exactly, but on a CPU an LSTM is one fused operator, for which it has no
# formula. fvcore has none for either, torchprofile none for the GRU. Torch-Pruning counts 35 times as many. Each returns
# a total without an error, so a convolutional network that ends in an LSTM seems to be narrower, or wider, than it is.
#
# Seen, for one sequence of ten steps, 32 inputs and 16 features (products of all weights: LSTM 30,720, GRU 23,040):
# LSTM: FlopCounterMode 0, torchinfo 32,000, torchprofile 30,720, fvcore 0, Torch-Pruning 1,075,200, thop 33,280.
# GRU: FlopCounterMode 23,040, torchinfo 24,000, torchprofile 0, fvcore 0, Torch-Pruning 803,840, thop 25,120.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy thop==0.1.1.post2209072238 torchprofile==0.1.0 torchinfo==1.8.0 torch-pruning==1.6.1 \
    fvcore==0.1.5.post20221221
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import logging
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

logging.disable(logging.WARNING)
x = torch.randn(1, 10, 32)  # one sequence of ten steps
found = {}
for name, kind, gates in (("LSTM", nn.LSTM, 4), ("GRU", nn.GRU, 3)):
    network = kind(32, 16, batch_first=True).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(x)
    found[name] = {
        "products": 10 * gates * 16 * (32 + 16),
        "torch FlopCounterMode / 2": counter.get_total_flops() // 2,
        "torchinfo": int(torchinfo.summary(network, input_data=x, verbose=0).total_mult_adds),
        "torchprofile": int(torchprofile.profile_macs(network, x)),
        "fvcore": int(fvcore.nn.FlopCountAnalysis(network, x).total()),
        "Torch-Pruning": int(torch_pruning.utils.count_ops_and_params(network, x)[0]),
        "thop": int(thop.profile(network, inputs=(x,), verbose=False)[0]),
    }
    print(name, ", ".join(f"{counter}: {value:,}" for counter, value in found[name].items()))
lstm, gru = (list(counts.values()) for counts in found.values())
sys.exit(
    lstm != [30_720, 0, 32_000, 30_720, 0, 1_075_200, 33_280]
    or gru != [23_040, 23_040, 24_000, 0, 0, 803_840, 25_120]
)
PYTHON
