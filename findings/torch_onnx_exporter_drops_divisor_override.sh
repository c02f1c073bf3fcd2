#!/bin/sh
# torch's ONNX exporters write an average pooling with divisor_override as one without it.
#
# torch 2.13.0 with onnx 1.23.2, onnxscript 0.7.2, onnxruntime 1.32.0.
#
# `nn.AvgPool2d(3, divisor_override=4)` divides each sum of nine numbers by 4. ONNX's AveragePool has no such attribute;
# both exporters write it all the same, without a multiplication behind it and without a warning, so that the file gives
# 4/9 of what the module gives.
#
# Seen with 3 x 3 windows, the file's output over the module's: 1 without a divisor, 0.444 with a divisor of 4, by
# dynamo=True and by dynamo=False.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy onnx==1.23.2 \
    onnxscript==0.7.2 onnxruntime==1.32.0
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import logging
import sys
import warnings

import onnxruntime
import torch
from torch import nn

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
x = torch.rand(1, 2, 12, 12) + 1
seen = {}
for divisor in (None, 4):
    pool = nn.AvgPool2d(3, divisor_override=divisor).eval()
    for dynamo in (True, False):
        torch.onnx.export(pool, (x,), "pool.onnx", dynamo=dynamo, verbose=False)
        session = onnxruntime.InferenceSession("pool.onnx")
        (output,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        ratios = torch.from_numpy(output) / pool(x)
        seen[divisor, dynamo] = (round(float(ratios.min()), 3), round(float(ratios.max()), 3))
        print(f"divisor {divisor}, dynamo={dynamo}: the file gives {seen[divisor, dynamo][0]} of the module's output")
exact, lost = (1.0, 1.0), (0.444, 0.444)
sys.exit(seen != {(None, True): exact, (None, False): exact, (4, True): lost, (4, False): lost})
PYTHON
