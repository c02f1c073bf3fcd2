#!/bin/sh
# torch's own FLOP counter finds nothing in fused attention on a CPU.
#
# torch 2.13.0.
#
# FlopCounterMode counts by a table of operators. On a CPU scaled_dot_product_attention runs
# aten::_scaled_dot_product_flash_attention_for_cpu, which is not in it: the same call counts right under the backend
# MATH, which is made of matrix products, and 0 otherwise. No warning is given.
#
# Seen, for one head of 32 features over 16 positions, 2 * 16 * 16 * 32 = 16,384 multiply-adds: 0 as it comes, 16,384 under
# SDPBackend.MATH.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

q, k, v = torch.randn(3, 1, 1, 16, 32)


def multiply_adds() -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        scaled_dot_product_attention(q, k, v)
    return counter.get_total_flops() // 2


usual = multiply_adds()
with sdpa_kernel(SDPBackend.MATH):
    plain = multiply_adds()
print(f"as it comes: {usual:,}; under SDPBackend.MATH: {plain:,}")
sys.exit((usual, plain) != (0, 16_384))
PYTHON
