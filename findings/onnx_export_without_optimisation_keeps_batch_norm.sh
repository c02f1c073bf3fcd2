#!/bin/sh
# A file of torch.onnx.export(optimize=False) keeps its batch norms in ONNX Runtime, too.
#
# torch 2.13.0, onnxscript 0.7.2, onnxruntime 1.32.0.
#
# ONNX Runtime folds a batch norm into the convolution before it, so that leaving the exporter's own optimisation out
# looks harmless. But the exporter writes the four tensors of a batch norm through Shape, CastLike and Expand, and not as
# initialisers. ONNX Runtime computes some of that beforehand, not all, and its fusion asks for initialisers: every batch
# norm stays, and is run for every image. Times of such a file are those of another graph than the one that is deployed.
#
# Seen, for six layers of convolution, batch norm and ReLU, after ONNX Runtime's own optimisation: 6 BatchNormalization
# from optimize=False, none from optimize=True; both files give the same outputs.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort

ort.set_default_logger_severity(3)
parts = [part for _ in range(6) for part in (nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())]
network = nn.Sequential(*parts).eval()
x = torch.randn(1, 16, 32, 32)
norms, outputs = [], []
for optimize in (False, True):
    program = torch.onnx.export(network, (x,), dynamo=True, optimize=optimize, verbose=False)
    options = ort.SessionOptions()
    options.optimized_model_filepath = "optimised.onnx"
    content = program.model_proto.SerializeToString()
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    outputs.append(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])
    kept = Counter(node.op_type for node in onnx.load("optimised.onnx").graph.node)
    norms.append(kept["BatchNormalization"])
    print(f"optimize={optimize}: {dict(kept)}")
np.testing.assert_allclose(*outputs, rtol=1e-3, atol=1e-4)
sys.exit(norms != [6, 0])
PYTHON
