import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bcnet import models

COSTS = {  # name: MACs, parameters (both in millions), width groups
    "vgg19": (398.1, 20.04, 16),
    "vgg19_quarter": (25.2, 1.26, 16),
    "mobilenetv2": (296.5, 2.24, 25),
    "resnet20": (40.8, 0.27, 12),
    "resnet56": (125.7, 0.86, 30),
    "channel_bench_mobilenet": (211.3, 1.80, 7),
    "channel_bench_resnet": (1436.2, 15.36, 7),
    "resnet_digits": (1.19, 0.033, 6),
    "vgg_digits": (2.61, 0.012, 6),
    "proxylessnas_mobile": (320.4, 4.08, 28),
}

LARGE = ("proxylessnas_mobile", "mobilenetv2", "resnet56")


def test_every_network_of_ours_has_its_cost_checked():
    assert set(COSTS) == set(models.NAMES)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in models.NAMES]
)
def test_costs_and_groups(traced_ours, name):
    space, model, input_size = traced_ours(name)
    macs, params, groups = COSTS[name]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(torch.zeros(1, *input_size))
    assert space.reference.macs == counter.get_total_flops() // 2
    assert space.reference.params == sum(p.numel() for p in model.parameters())
    assert space.reference.macs / 1e6 == pytest.approx(macs, rel=0.005)
    assert space.reference.params / 1e6 == pytest.approx(params, rel=0.02)
    assert len(space.groups) == groups


@pytest.mark.parametrize("name", ["vgg19", "mobilenetv2", "resnet20", "resnet_digits", "channel_bench_mobilenet"])
def test_classes_and_input_channels_follow_the_data(name):
    spec = models.create(name, num_classes=7, in_channels=2)
    assert spec.input_size[0] == 2
    assert spec.build()(torch.randn(2, *spec.input_size)).shape == (2, 7)


def test_every_build_is_a_new_network():
    spec = models.create("resnet_digits")
    first, second = spec.build(), spec.build()
    assert not torch.equal(first.classifier.weight, second.classifier.weight)


def test_the_digits_network_learns_in_a_few_steps():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(32) % 2
    x = torch.randn(32, 1, 8, 8, generator=generator) + y.view(-1, 1, 1, 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = models.resnet_digits(num_classes=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("make", [models.resnet20, models.resnet_digits, models.proxylessnas_mobile])
def test_a_width_multiplier_widens_every_layer(make):
    def channels(network):
        return [module.out_channels for module in network.modules() if isinstance(module, torch.nn.Conv2d)]

    assert channels(make(width_mult=1.5)) == [round(1.5 * width) for width in channels(make())]
    assert make(7, width_mult=1.5).classifier.out_features == 7
