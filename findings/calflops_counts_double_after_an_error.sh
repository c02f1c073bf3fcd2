#!/bin/sh
# calflops counts every network twice after a call that failed, three times after the next one that fails.
#
# calflops 0.3.2 with torch 2.13.0.
#
# It replaces torch.nn.functional's operators by its own for the time of a call, and puts them back at its end. A forward
# pass that raises, as for an input of the wrong number of channels, leaves them in place, and the next call wraps them
# again: each layer adds its work once for every wrapper. In a notebook, where the mistake is mended and the cell run
# again, the count is too high from then on, without a warning.
#
# Seen, for 8 -> 8 channels, a 3x3 kernel and a 16x16 map, 147,456 multiply-adds: 147,456, then a call with 3 channels,
# which raises, then 294,912, another such call, then 442,368.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy accelerate==1.15.0 \
    transformers==5.24.0 calflops==0.3.2
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys

import torch
from calflops import calculate_flops
from torch import nn

layer = nn.Conv2d(8, 8, 3, padding=1, bias=False)


def count(channels):
    x = torch.randn(1, channels, 16, 16)
    return calculate_flops(layer, args=[x], output_as_string=False, print_results=False, print_detailed=False)[1]


seen = [count(8)]
for _ in range(2):
    try:
        count(3)
        sys.exit("three channels do not raise any more")
    except (AssertionError, RuntimeError):
        seen.append(count(8))
print("multiply-adds: " + ", then after an error ".join(f"{macs:,}" for macs in seen))
sys.exit(seen != [147_456, 294_912, 442_368])
PYTHON
