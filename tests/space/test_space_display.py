import numpy as np
import torch
from torch import nn

from bcnet import Budget, WidthSpace
from bcnet.display import table


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))

    def forward(self, x):
        return self.layers(x)


def test_a_space_and_its_costs_are_tables_in_a_notebook():
    space = WidthSpace.trace(Plain(), torch.zeros(2, 3, 8, 8), num_choices=4)
    shown = space._repr_html_()
    assert shown.count("<tr>") == 1 + len(space.groups) + 1 + len(space.fixed)
    (group,) = space.groups
    assert f">{group.name}</td><td>8</td><td>1</td><td>4</td><td>2</td>" in shown  # the narrowest choice is 2
    assert "<caption>Pinned at full width</caption>" in shown
    assert "layers.2.weight" in shown
    assert f"<td>{space.reference.macs:,}</td>" in space.reference._repr_html_()
    assert space.cost(np.array([[2], [4], [8]]))._repr_html_().count("<tr>") == 4
    assert "0.5x MACs" in Budget(macs=0.5)._repr_html_()
    assert Budget(macs=5_000, params=0.25)._repr_html_().count("<tr>") == 3


def test_what_is_shown_is_escaped_and_cut():
    shown = table("<b>", ("a<",), [("<script>",)] * 61, ["&"])
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert "&lt;script&gt;" in shown
    assert "&amp;" in shown
    assert shown.count("&lt;script&gt;") == 60
    assert "1 more rows" in shown
