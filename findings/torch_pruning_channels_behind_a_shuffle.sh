#!/bin/sh
# Torch-Pruning removes the wrong input channels behind a channel shuffle, and its own check finds nothing wrong.
#
# torch-pruning 1.6.1 with torch 2.13.0.
#
# Its dependency graph follows a pruned channel through reshape and transpose by the channel's number, and does not see
# that the two move channels. Behind the shuffle of a ShuffleNet the next layer loses the inputs of these numbers and
# keeps those of the channels that are gone; numbers of channels fit, so that the network runs. The importance of
# a group is summed over the wrong slices as well. A flip, a roll and a stack of channels end the same way; a slice with
# a step and a concatenation are followed rightly.
#
# Seen with channels 1 and 2 of 8, whose filters are zero, so that pruning them should change no output: without a shuffle
# the outputs differ by 0, and behind one of 2 groups, where the channels arrive as 2 and 4, inputs 1 and 2 are pruned and
# outputs differ by as much as the outputs' own size.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy torch-pruning==1.6.1
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")

import torch_pruning as tp


class Network(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 5, 3, padding=1)
        self.groups = groups

    def forward(self, x):
        x = self.first(x)
        count, _, height, width = x.shape
        x = x.reshape(count, self.groups, -1, height, width).transpose(1, 2).flatten(1, 2)
        return self.second(x)


seen = {}
for groups in (1, 2):
    torch.manual_seed(0)
    network = Network(groups).eval()
    dead = [1, 2]
    with torch.no_grad():
        network.first.weight[dead] = 0
        network.first.bias[dead] = 0
    x = torch.randn(2, 3, 8, 8)
    before = network(x).detach()
    graph = tp.DependencyGraph().build_dependency(network, x)
    group = graph.get_pruning_group(network.first, tp.prune_conv_out_channels, idxs=dead)
    inputs = [list(map(int, idxs)) for dependency, idxs in group if dependency.target.module is network.second]
    fits = graph.check_pruning_group(group)
    group.prune()
    after = network(x).detach()
    share = float((after - before).abs().max() / before.abs().max())
    seen[groups] = (inputs, fits, share > 0.1)
    print(f"{groups} groups: input channels {inputs} pruned, check {fits}, outputs off by {share:.3f} of their largest")
sys.exit(seen != {1: ([[1, 2]], True, False), 2: ([[1, 2]], True, True)})
PYTHON
