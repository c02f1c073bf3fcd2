#!/bin/sh
# torchinfo counts a linear layer over a sequence as if the sequence had one element.
#
# torchinfo 1.8.0, torch 2.13.0.
#
# For a linear layer `total_mult_adds` multiplies the parameters by the batch alone. Over (batch, tokens, features), as
# channels-last networks of the ConvNeXt kind have it, every position but one is left out, while a 1x1 convolution that
# computes the same is counted at every position.
#
# Seen, for 16 -> 8 features over 25 positions, 3,200 multiply-adds: the 1x1 convolution 3,200, the linear layer 128.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy torchinfo==1.8.0
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")

import torchinfo

x = torch.randn(1, 25, 16)
linear = nn.Linear(16, 8, bias=False)
convolution = nn.Conv1d(16, 8, 1, bias=False)
convolution.weight.data.copy_(linear.weight.data[..., None])
torch.testing.assert_close(linear(x), convolution(x.transpose(1, 2)).transpose(1, 2))
found = (
    int(torchinfo.summary(convolution, input_data=x.transpose(1, 2), verbose=0).total_mult_adds),
    int(torchinfo.summary(linear, input_data=x, verbose=0).total_mult_adds),
)
print(f"1x1 convolution: {found[0]:,}; linear layer: {found[1]:,}")
sys.exit(found != (3_200, 128))
PYTHON
