"""An architecture goes through JSON and comes back as the same network; what is not the same is refused."""

import copy
import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from networks import TRICKY, tricky_network
from torch import nn

from bcnet.errors import BCNetError, ModelError
from bcnet.supernet import build, describe, rebuild


def document(name: str = "Residual", widths: tuple[int, ...] = (5, 2)) -> dict:
    model, space, _ = tricky_network(name)
    return describe(model, space, widths, reference=f"networks:{name}")


@pytest.mark.parametrize("name", TRICKY)
def test_a_rebuilt_network_takes_the_weights_of_the_built_one(name: str, tmp_path: Path) -> None:
    model, space, x = tricky_network(name)
    widths = space.sample(torch.Generator().manual_seed(5))
    network = build(model, space, widths).eval()
    path = tmp_path / "architecture.json"
    path.write_text(json.dumps(describe(model, space, widths)))
    again = rebuild(path, TRICKY[name]).double().eval()
    again.load_state_dict(network.state_dict())
    torch.testing.assert_close(again(x), network(x))


def test_the_document_says_what_the_network_costs() -> None:
    _, space, _ = tricky_network("Residual")
    written = document()
    assert (written["macs"], written["params"]) == tuple(space.cost((5, 2)))
    assert {g["name"]: g["width"] for g in written["groups"]} == {"stem": 5, "middle": 2}
    assert written["model"] == "networks:Residual"
    assert written["space"] == space.fingerprint()


class Changed(TRICKY["Residual"]):
    pass


def _wider() -> nn.Module:
    network = Changed()
    network.middle = nn.Conv2d(8, 7, 3, padding=1, bias=False)
    return network


def _longer() -> nn.Module:
    network = Changed()
    network.extra = nn.Linear(2, 2)
    return network


def _shorter() -> nn.Module:
    network = Changed()
    network.middle = nn.Identity()
    return network


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (_wider, r"tensor 'middle.weight' had shape \(6, 8, 3, 3\), got \(7, 8, 3, 3\)"),
        (_longer, "tensor 'extra.weight' is new"),
        (_shorter, "no tensor 'middle.weight' any more"),
        (lambda: 3, "makes a torch.nn.Module; got int"),
    ],
)
def test_a_changed_model_is_refused_with_the_first_difference(factory: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        rebuild(document(), factory)


def test_what_is_no_document_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        rebuild(tmp_path / "none.json", TRICKY["Residual"])
    (tmp_path / "text.json").write_text("{")
    with pytest.raises(ModelError, match="is not JSON"):
        rebuild(tmp_path / "text.json", TRICKY["Residual"])
    with pytest.raises(ModelError, match="written by bcnet; format"):
        rebuild({"format": "other"}, TRICKY["Residual"])


def test_a_bias_that_varies_without_its_weight_gets_a_network_whose_layer_refuses_to_run() -> None:
    mutated = copy.deepcopy(document())
    mutated["tensors"]["stem.weight"][0][0]["group"] = None
    network = rebuild(mutated, TRICKY["Residual"])
    assert (network.stem.out_channels, len(network.stem.weight), len(network.stem.bias)) == (8, 8, 5)
    with pytest.raises(RuntimeError, match="bias"):
        network(torch.zeros(2, 3, 8, 8))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_documents_are_refused_or_harmless(data: st.DataObject) -> None:
    mutated = copy.deepcopy(document())
    node: object = mutated
    while True:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = data.draw(st.sampled_from([None, -1, 0, 1, 3, 10**9, "x", [], {}, 2.5, True]))
    try:
        network = rebuild(mutated, TRICKY["Residual"])
    except BCNetError:
        return
    assert isinstance(network, TRICKY["Residual"])
