#!/bin/sh
# FastNAS of NVIDIA's Model Optimizer offers no widths for the last convolution before a linear head.
#
# nvidia-modelopt 0.47.0, torch 2.13.0.
#
# In a chain of three equal convolutions and a linear head, the first two get the choices 32 and 64, the third none,
# whether the map is pooled to one pixel before the head or flattened as it is. The last convolution, often the widest,
# stays whole under every budget, and the others have to make up for it.
#
# Seen, for both heads: choices for convolutions 0 and 1 alone.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy nvidia-modelopt==0.47.0 \
    torchprofile requests huggingface_hub
cd "$work"
"$work/env/bin/python" - 2>/dev/null <<'PYTHON'
import sys
import warnings

warnings.simplefilter("ignore")

import modelopt.torch.nas as mtn
from modelopt.torch.opt.utils import named_hparams
from modelopt.torch.prune.fastnas import FastNASConfig
from torch import nn

found = {}
for pools in (True, False):
    channels = (3, 64, 64, 64)
    convolutions = [nn.Conv2d(i, o, 3, padding=1) for i, o in zip(channels, channels[1:])]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)] if pools else [nn.Flatten(), nn.Linear(4096, 10)]
    network = mtn.convert(nn.Sequential(*convolutions, *head), mode=[("fastnas", FastNASConfig())])
    name = "pooled" if pools else "flattened"
    found[name] = {name: tuple(choices.choices) for name, choices in named_hparams(network, configurable=True)}
    print(f"{name}: {found[name]}")
expected = {"0.out_channels": (32, 64), "1.out_channels": (32, 64)}
sys.exit(found != {"pooled": expected, "flattened": expected})
PYTHON
