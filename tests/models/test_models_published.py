import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bcnet.errors import ModelError, WidthError
from bcnet.models import published
from bcnet.space import WidthSpace

DATA = Path(__file__).parents[2].parent / "shared" / "data"
CIFAR10 = {  # millions of MACs and parameters, as counted on the published networks
    ("mobilenetv2", "200M"): (200.1, 1.47),
    ("mobilenetv2", "144M"): (144.4, 1.23),
    ("mobilenetv2", "44M"): (44.3, 0.36),
    ("mobilenetv2", "28M"): (28.7, 0.21),
    ("vgg19", "0.5"): (197.4, 3.11),
    ("vgg19", "0.464"): (185.4, 6.68),
    ("vgg19", "0.35"): (138.9, 3.34),
    ("vgg19", "0.197"): (77.1, 1.20),
}
IMAGENET = {  # BCNet's own, millions of MACs
    ("resnet50", "3G"): 3104.6,
    ("resnet50", "2G"): 2038.3,
    ("resnet50", "1G"): 1063.3,
    ("resnet50", "575M"): 577.9,
    ("mobilenet_v2", "217M"): 218.6,
    ("mobilenet_v2", "150M"): 149.9,
    ("mobilenet_v2", "105M"): 106.5,
    ("mobilenet_v2", "50M"): 50.9,
}
AUTOSLIM = {  # millions of MACs
    ("resnet50", "570M"): 570.0,
    ("resnet50", "1000M"): 999.9,
    ("resnet50", "2006M"): 2006.0,
    ("resnet50", "3005M"): 3004.5,
    ("mobilenet_v2", "207M"): 206.8,
    ("mobilenet_v2", "305M"): 305.1,
    ("mobilenet_v2", "505M"): 504.9,
}


def traced(model, size):
    return WidthSpace.trace(model, torch.randn(2, *size)), model


@pytest.fixture(scope="module")
def imagenet():
    torchvision = pytest.importorskip("torchvision")
    return {
        "resnet50": traced(torchvision.models.resnet50(), (3, 224, 224)),
        "mobilenet_v2": traced(torchvision.models.mobilenet_v2(width_mult=1.5), (3, 224, 224)),
    }


@pytest.mark.parametrize(
    ("network", "variant"),
    [pytest.param(*case, marks=[pytest.mark.slow] if case[0] == "mobilenetv2" else []) for case in CIFAR10],
)
def test_published_cifar10_widths_cost_what_the_paper_says(traced_ours, network, variant):
    space, model, _ = traced_ours(network)
    cost = space.cost(published.widths(space, model, f"{network}_cifar10", variant))
    macs, params = CIFAR10[network, variant]
    assert cost.macs / 1e6 == pytest.approx(macs, abs=0.1)
    assert cost.params / 1e6 == pytest.approx(params, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("network", "variant"), AUTOSLIM)
def test_autoslim_widths_cost_what_they_should(imagenet, network, variant):
    space, model = imagenet[network]
    key = {"resnet50": "resnet50_imagenet", "mobilenet_v2": "mobilenetv2_imagenet"}[network]
    cost = space.cost(published.widths(space, model, key, variant))
    assert cost.macs / 1e6 == pytest.approx(AUTOSLIM[network, variant], abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("network", "variant"), IMAGENET)
def test_imagenet_widths_cost_what_they_should(network, variant):
    torchvision = pytest.importorskip("torchvision")
    space, model = traced(getattr(torchvision.models, network)(), (3, 224, 224))
    entry = published.entry_of(f"torchvision:{network}", variant)
    cost = space.cost(published.widths(space, model, *entry))
    assert cost.macs / 1e6 == pytest.approx(IMAGENET[network, variant], abs=0.1)


@pytest.mark.parametrize(("network", "entry"), [("1G", "resnet50_imagenet_bcnet"), ("1000M", "resnet50_imagenet")])
def test_a_model_may_have_widths_of_several_authors(network, entry):
    assert published.entry_of("torchvision:resnet50", network) == (entry, network)


def test_no_variant_has_two_authors():
    for model, networks in published._models().items():
        names = [name for network in networks for name in published.table()[network]]
        assert len(names) == len(set(names)), model


def test_every_network_of_channel_bench_macro_has_its_exact_cost(traced_ours):
    path = DATA / "channel_bench_macro" / "mobilenet.csv"
    if not path.is_file():
        pytest.skip(f"the table of Channel-Bench-Macro is not at {path}")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    space, _, _ = traced_ours("channel_bench_mobilenet")
    assert space.full == (128, 768, 768, 768, 256, 1536, 1024)
    quarters = np.array([[int(digit) for digit in row["arch"]] for row in rows])
    cost = space.cost(quarters * np.array(space.full) // 4)
    assert len(rows) == 4**7
    assert (cost.macs == [int(row["macs"]) for row in rows]).all()
    assert (cost.params == [int(row["params"]) for row in rows]).all()


def test_unknown_networks_and_variants_list_what_there_is(traced_ours):
    space, model, _ = traced_ours("vgg19")
    with pytest.raises(ModelError, match=r"exist for mobilenetv2_cifar10, vgg19_cifar10.*got 'vgg16'"):
        published.widths(space, model, "vgg16", "0.5")
    with pytest.raises(ModelError, match=r"exist for 0\.5, 0\.464, 0\.35, 0\.197; got '0\.6'"):
        published.widths(space, model, "vgg19_cifar10", "0.6")


def test_widths_of_another_model_are_refused(traced_ours):
    space, model, _ = traced_ours("vgg19")
    with pytest.raises(ModelError, match="are for 52 convolutions; got a model that has 16"):
        published.widths(space, model, "mobilenetv2_cifar10", "200M")


def test_tied_convolutions_must_agree():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 512, 1)
            self.rest = nn.ModuleList(nn.Conv2d(512, 512, 1) for _ in range(15))
            self.head = nn.Linear(512, 10)

        def forward(self, x):
            x = self.first(x)
            for layer in self.rest:
                x = x + layer(x)
            return self.head(x.mean((2, 3)))

    space, model = traced(Tied(), (3, 4, 4))
    with pytest.raises(ModelError, match=r"must share one width; got 44 and, for 'rest.0.weight', 51"):
        published.widths(space, model, "vgg19_cifar10", "0.5")


def test_a_narrower_model_is_refused():
    narrow = nn.Sequential(
        *(nn.Conv2d(3 if i == 0 else 40, 40, 1) for i in range(16)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(40, 10),
    )
    space, model = traced(narrow, (3, 4, 4))
    with pytest.raises(WidthError, match="44"):
        published.widths(space, model, "vgg19_cifar10", "0.5")
