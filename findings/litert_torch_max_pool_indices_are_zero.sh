#!/bin/sh
# litert-torch gives zeros for the indices of a max pooling.
#
# litert-torch 0.10.0 with ai-edge-litert 2.3.0 and torch 2.13.0.
#
# max_pool2d(return_indices=True) also returns where each maximum was, for max_unpool2d (SegNet and its like) or as key
# points. TFLite's pooling has no such output. The converter writes zeros in its place, without an error or a warning, and
# the maxima themselves are right.
#
# Seen for a map with the maxima of its four 2 x 2 windows at 5, 2, 8 and 15: maxima equal, indices 0, 0, 0, 0.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check 'numpy<3' torch==2.13.0 litert-torch==0.10.0 \
  ai-edge-litert==2.3.0
cd "$work"
"$work/env/bin/python" - > log 2> errors <<'PYTHON'
import sys

import litert_torch
import torch
from ai_edge_litert.interpreter import Interpreter


class Pool(torch.nn.Module):
    def forward(self, x):
        maxima, indices = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
        return maxima, indices.float()


x = torch.zeros(1, 1, 4, 4)
for place, value in ((5, 1.0), (2, 2.0), (8, 3.0), (15, 4.0)):
    x.view(-1)[place] = value
network = Pool().eval()
litert_torch.convert(network, (x,)).export("pool.tflite")
interpreter = Interpreter("pool.tflite")
interpreter.allocate_tensors()
interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x.numpy())
interpreter.invoke()
found = [interpreter.get_tensor(detail["index"]).flatten().tolist() for detail in interpreter.get_output_details()]
maxima, indices = (output.flatten().tolist() for output in network(x))
print(f"seen: maxima {found[0]}, PyTorch {maxima}; indices {found[1]}, PyTorch {indices}")
sys.exit(found != [maxima, [0.0] * 4] or indices != [5.0, 2.0, 8.0, 15.0])
PYTHON
grep "^seen" log
