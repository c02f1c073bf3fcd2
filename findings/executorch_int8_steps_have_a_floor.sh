#!/bin/sh
# ExecuTorch's XNNPACK quantiser makes no int8 step finer than 2^-12, so that small outputs are rounded to nothing.
#
# executorch 1.5.1 with torch 2.13.0 and torchao 0.18.0.
#
# `get_symmetric_quantization_config` gives its observers an `eps` of 2^-12 = 0.000244: no scale of activations or weights
# is smaller. A tensor whose values all lie within 0.031 has fewer than 256 steps, and one within 0.0005 has four. A
# network that regresses small numbers, in metres what could be millimetres, loses what it computes, and no warning is
# given. Multiplying the targets by a constant before training cures it.
#
# Seen with two linear layers whose last is scaled down: outputs up to 0.45 come out 0.4 % off, up to 0.0045 4 % off, and
# up to 0.00045 35 % off, with 4 different values among 512.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check 'numpy<3' \
    torch==2.13.0 executorch==1.5.1 torchao==0.18.0
cd "$work"
"$work/env/bin/python" - 2>/dev/null <<'PYTHON'
import sys

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8)).eval()
inputs = torch.rand(64, 16)
off, steps = [], []
for factor in (1.0, 1e-2, 1e-1):  # 1, then a hundredth, then a thousandth of the outputs
    with torch.no_grad():
        for parameter in network[2].parameters():
            parameter.mul_(factor)
    quantizer = XNNPACKQuantizer()
    quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(network, (inputs,)).module(), quantizer)
    prepared(inputs)
    quantized = convert_pt2e(prepared)
    with torch.no_grad():
        expected, found = network(inputs), quantized(inputs)
    off.append(float((found - expected).norm() / expected.norm()))
    steps.append(float(found.unique().diff().min()))
    print(f"outputs up to {expected.abs().max():.2g}: {off[-1]:.1%} off, {len(found.unique())} different values")
print(f"the smallest step between them: {steps[1]} and {steps[2]}")
sys.exit(not (off[0] < 0.01 and off[2] > 0.2 and steps[1] == steps[2] == 2**-12))
PYTHON
