"""Narrowing in one call: the class, the channels, the statistics, and that the model is left as it was."""

import copy

import pytest
import torch
from tiny_job import TinyNetwork
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bcnet
from bcnet.errors import DataError, WidthError
from bcnet.supernet import by_importance


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = TinyNetwork()
    for part in model.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(part.weight, 0.5, 2.0)
    return model.eval()


IMAGES = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("weights", ["important", "first", "fresh"])
def test_a_narrow_network_is_of_the_class_and_the_model_stays(model, weights):
    before = copy.deepcopy(model.state_dict())
    space = bcnet.trace(model, IMAGES[:2])
    network = bcnet.narrow(model, space, (3, 5), weights=weights)
    assert type(network) is TinyNetwork
    assert not network.training
    assert network(IMAGES).shape == (16, 3)
    assert space.cost((3, 5)).params == sum(p.numel() for p in network.parameters())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_the_important_channels_and_the_first_ones_are_kept(model):
    space = bcnet.trace(model, IMAGES[:2])
    order = by_importance(model, space)[0]
    kept = bcnet.narrow(model, space, (3, 12)).first[0].weight
    assert torch.equal(kept, model.first[0].weight[sorted(order[:3])])
    assert torch.equal(bcnet.narrow(model, space, (3, 12), weights="first").first[0].weight, model.first[0].weight[:3])


def test_at_full_width_it_computes_what_the_model_does(model):
    space = bcnet.trace(model, IMAGES[:2])
    for weights in ("important", "first"):
        torch.testing.assert_close(bcnet.narrow(model, space, space.full, weights=weights)(IMAGES), model(IMAGES))


class CoupledChannels(nn.Module):
    """A convolution along the channels: their order matters to it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.along = nn.Conv1d(1, 1, 3, padding=1, bias=False)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.first(x).relu().mean((2, 3))
        return self.head(x * self.along(x[:, None]).squeeze(1).sigmoid())


def test_kept_channels_stay_in_their_order():
    torch.manual_seed(0)
    network = CoupledChannels().eval()
    space = bcnet.trace(network, IMAGES[:2])
    # The orders differ, so that moved channels would be seen.
    assert by_importance(network, space)[0] != tuple(range(8))
    torch.testing.assert_close(bcnet.narrow(network, space, (8,))(IMAGES), network(IMAGES))


def test_statistics_are_those_of_the_calibration_images(model):
    space = bcnet.trace(model, IMAGES[:2])
    network = bcnet.narrow(model, space, (3, 5), calibrate=[IMAGES])
    mean = network.first[0](IMAGES).mean((0, 2, 3))
    torch.testing.assert_close(network.first[1].running_mean, mean)


def test_one_tensor_of_calibration_images_is_one_batch(model):
    space = bcnet.trace(model, IMAGES)
    networks = [bcnet.narrow(model, space, (3, 5), calibrate=images) for images in (IMAGES, [IMAGES])]
    first, second = (network.state_dict() for network in networks)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_what_does_not_fit_is_refused(model):
    space = bcnet.trace(model, IMAGES[:2])
    with pytest.raises(WidthError, match="important, first, fresh; got 'best'"):
        bcnet.narrow(model, space, (3, 5), weights="best")
    with pytest.raises(WidthError, match="got 1"):
        bcnet.narrow(model, space, (3,))
    with pytest.raises(WidthError, match="in this order; got WidthSpace and"):
        bcnet.narrow(space, model, (3, 5))
    with pytest.raises(DataError, match="batch"):
        bcnet.narrow(model, space, (3, 5), calibrate=[])


LABELS = torch.arange(16) % 3


@pytest.mark.parametrize(
    "given",
    [
        IMAGES.numpy(),
        [IMAGES.numpy()],
        [{"images": IMAGES}],
        [(IMAGES, LABELS)],
        [(IMAGES, torch.randn(16, 2))],
        [{"image": IMAGES, "label": LABELS}],
        TensorDataset(IMAGES, LABELS),
        TensorDataset(IMAGES),
        DataLoader(TensorDataset(IMAGES, LABELS), 16),
    ],
    ids=["array", "arrays", "named", "pair", "regression", "dict", "data set", "inputs alone", "loader"],
)
def test_inputs_come_in_any_form_with_or_without_targets(model, given):
    space = bcnet.trace(model, IMAGES[:2])
    expected = bcnet.narrow(model, space, (3, 5), calibrate=IMAGES)
    network = bcnet.narrow(model, space, (3, 5), calibrate=given)
    for name, tensor in expected.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor)


def test_a_data_set_is_read_at_even_distances(model):
    read = []

    class Large(TensorDataset):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    space = bcnet.trace(model, IMAGES[:2])
    bcnet.narrow(model, space, (3, 5), calibrate=Large(IMAGES[:1].expand(3000, -1, -1, -1)))
    assert read == [*range(0, 3000, 3)]


class Sum(nn.Module):
    """Adds an input and a second one of integers, which has a default."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x, shift):
        return self.head(self.norm(self.conv(x + shift[:, None, None, None])).mean((2, 3)))


def test_a_second_input_of_integers_is_no_target():
    torch.manual_seed(0)
    model = Sum().eval()
    space = bcnet.trace(model, (IMAGES[:2], LABELS[:2]))
    network = bcnet.narrow(model, space, (4,), calibrate=[(IMAGES, LABELS)])
    with torch.no_grad():
        mean = network.conv(IMAGES + LABELS[:, None, None, None]).mean((0, 2, 3))
    torch.testing.assert_close(network.norm.running_mean, mean)


class OfList(Sum):
    """Takes its two inputs in one list."""

    def forward(self, both):
        return super().forward(*both)


def test_an_input_may_be_a_list():
    torch.manual_seed(0)
    model = OfList().eval()
    space = bcnet.trace(model, ([IMAGES[:2], LABELS[:2]],))
    network = bcnet.narrow(model, space, (4,), calibrate=[([IMAGES, LABELS],)])
    with torch.no_grad():
        mean = network.conv(IMAGES + LABELS[:, None, None, None]).mean((0, 2, 3))
    torch.testing.assert_close(network.norm.running_mean, mean)
    with pytest.raises(DataError, match=r"fails on batch 0 \(from 0\), \(16, 8, 8\) float32 and \(16,\) int64"):
        bcnet.narrow(model, space, (4,), calibrate=[([IMAGES[:, 0], LABELS],)])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([IMAGES[:, :, 0]], r"batch 0 \(from 0\), \(16, 1, 8\) float32: .*"),
        ([IMAGES, IMAGES.expand(-1, 3, -1, -1)], r"batch 1 \(from 0\), \(16, 3, 8, 8\) float32: RuntimeError: .*"),
        ([(IMAGES.double())], r"batch 0 .*\(16, 1, 8, 8\) float64: RuntimeError"),
        ([IMAGES * float("nan")], r"inputs must be finite; got NaN or infinity in batch 0"),
        ([["a", "b", "c"]], r"got str in batch 0 \(from 0\): convert it to a tensor"),
        (5, r"inputs must be a tensor .*; got 5"),
        ("cifar10", r"inputs must be a tensor .*; got 'cifar10'"),
        (TensorDataset(IMAGES[:0]), r"needs at least one batch"),
    ],
)
@pytest.mark.parametrize("reconstruct", [False, True])
def test_inputs_that_do_not_fit_are_named(model, given, message, reconstruct):
    space = bcnet.trace(model, IMAGES[:2])
    with pytest.raises(DataError, match="got no batch" if reconstruct and "at least one" in message else message):
        bcnet.narrow(model, space, (3, 5), calibrate=given, reconstruct=reconstruct)


def test_an_item_that_cannot_be_read_is_named(model):
    class Broken(TensorDataset):
        def __getitem__(self, index):
            raise OSError("no such file")

    space = bcnet.trace(model, IMAGES[:2])
    with pytest.raises(DataError, match=r"batch 0 \(from 0\) cannot be read: OSError: no such file"):
        bcnet.narrow(model, space, (3, 5), calibrate=Broken(IMAGES))
