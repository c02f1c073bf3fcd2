#!/bin/sh
# litert-torch writes PyTorch's "nearest" resizing as one that takes the pixel at the centre.
#
# litert-torch 0.10.0 with ai-edge-litert 2.3.0 and torch 2.13.0.
#
# F.interpolate(mode="nearest") takes the pixel floor(i * old / new). The converter writes RESIZE_NEAREST_NEIGHBOR with
# half-pixel centres, which is mode="nearest-exact". Both agree where an image grows by a whole factor. Elsewhere other
# pixels are taken, a shift of half a pixel of the result, without a warning: masks and features that are shrunk or
# brought to the size of another map do not lie where they did in training.
#
# Seen for a row 0, 1, ..., 15: to 32 pixels equal; to 8 pixels 1, 3, 5, ... in place of 0, 2, 4, ...; to 24 pixels
# unequal; "nearest-exact" to 8 pixels equal.
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


class Resize(torch.nn.Module):
    def __init__(self, size, mode):
        super().__init__()
        self.size, self.mode = size, mode

    def forward(self, x):
        return torch.nn.functional.interpolate(x, size=(1, self.size), mode=self.mode)


row = torch.arange(16.0).view(1, 1, 1, 16)
equal = {}
for size, mode in ((32, "nearest"), (8, "nearest"), (24, "nearest"), (8, "nearest-exact")):
    network = Resize(size, mode).eval()
    litert_torch.convert(network, (row,)).export("resize.tflite")
    interpreter = Interpreter("resize.tflite")
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], row.numpy())
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).flatten().tolist()
    expected = network(row).flatten().tolist()
    equal[size, mode] = found == expected
    print(f"seen: {mode}, 16 to {size}: {found[:4]}, PyTorch {expected[:4]}, equal {found == expected}")
    if (size, mode) == (8, "nearest"):
        halves = found == row.flatten()[1::2].tolist()
sys.exit(list(equal.values()) != [True, False, False, True] or not halves)
PYTHON
grep "^seen" log
