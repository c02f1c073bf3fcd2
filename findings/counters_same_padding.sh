#!/bin/sh
# fvcore and torchprofile count a convolution with padding="same" as nothing.
#
# fvcore 0.1.5.post20221221, torchprofile 0.1.0, torch 2.13.0.
#
# With padding given as a word, torch traces the layer to the operator aten::_convolution_mode and not to aten::_convolution.
# Both counters have no handler for that name. fvcore lists it among unsupported operators, torchprofile warns; the total is
# returned all the same, without the layer.
#
# Seen, for 3 -> 8 channels, a 3x3 kernel and a 16x16 map, 55,296 multiply-adds: by padding=1 both say 55,296, by
# padding="same" both say 0, though both layers compute the same.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy fvcore==0.1.5.post20221221 torchprofile==0.1.0
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")

import logging

import fvcore.nn
import torchprofile

logging.disable(logging.WARNING)
x = torch.randn(1, 3, 16, 16)
number = nn.Conv2d(3, 8, 3, padding=1, bias=False).eval()
word = nn.Conv2d(3, 8, 3, padding="same", bias=False).eval()
word.load_state_dict(number.state_dict())
assert torch.equal(number(x), word(x))
found = {}
for name, layer in (("padding=1", number), ("padding='same'", word)):
    found[name] = (int(fvcore.nn.FlopCountAnalysis(layer, x).total()), int(torchprofile.profile_macs(layer, x)))
    print(f"{name}: fvcore {found[name][0]:,}, torchprofile {found[name][1]:,}")
sys.exit(found != {"padding=1": (55_296, 55_296), "padding='same'": (0, 0)})
PYTHON
