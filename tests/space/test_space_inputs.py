"""Networks of several inputs, of pytrees, keyword arguments and tokens: traced, sliced and counted alike."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

import bcnet
from bcnet.errors import TraceError
from bcnet.space import Side, WidthSpace


def layer(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU())


class TwoPictures(nn.Module):
    """Both go through layers of their own, and meet."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.last = layer(1, 8), layer(3, 8), layer(8, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, left, right, scale=1.0):
        return self.head(self.last(self.left(left) + scale * self.right(right)).mean((2, 3)))


class Batch(TwoPictures):
    """Takes a dict, and gives one."""

    def forward(self, batch):
        a, b = batch["pictures"]
        return {"logits": super().forward(a, b), "weight": batch["weight"] * 2}


class Masked(TwoPictures):
    """Takes a mask by keyword."""

    def forward(self, left, right, *, mask):
        x = self.left(left) * mask[:, None] + self.right(right)
        return self.head(self.last(x).mean((2, 3)))


class Tokens(nn.Module):
    """Integers and their lengths."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.first, self.second = nn.Conv1d(8, 10, 3, padding=1), nn.Conv1d(10, 6, 3, padding=1)
        self.head = nn.Linear(6, 2)

    def forward(self, tokens, lengths):
        x = self.embedding(tokens).transpose(1, 2)
        x = self.second(functional.relu(self.first(x)))
        there = torch.arange(x.shape[2]) < lengths[:, None]
        return self.head((x * there[:, None]).sum(2) / lengths[:, None])


def pictures(count=2):
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, 1, 6, 6, generator=generator), torch.randn(count, 3, 6, 6, generator=generator)


CALLS = {
    "two pictures": (TwoPictures, pictures(), {}, {"left", "last"}),
    "a number beside them": (TwoPictures, (*pictures(), 0.5), {}, {"left", "last"}),
    "one by its name": (TwoPictures, pictures()[:1], {"right": pictures()[1]}, {"left", "last"}),
    "a batch of one": (TwoPictures, pictures(1), {}, {"left", "last"}),
    "a dict": (Batch, {"pictures": list(pictures()), "weight": torch.ones(2)}, {}, {"left", "last"}),
    "a mask by keyword": (Masked, pictures(), {"mask": torch.rand(2, 6, 6)}, {"left", "last"}),
    "tokens": (Tokens, (torch.randint(20, (2, 7)), torch.tensor([3, 7])), {}, {"first", "second", "embedding"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_paths_are_built_networks_and_products_are_counted(name):
    make, example, kwargs, groups = CALLS[name]
    torch.manual_seed(0)
    model = make()
    space = WidthSpace.trace(model, example, example_kwargs=kwargs)
    assert {group.name.partition(".")[0] for group in space.groups} == groups
    args = example if isinstance(example, tuple) else (example,)
    supernet = bcnet.Supernet(model, space)
    batch = next(len(leaf) for leaf in torch.utils._pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor))
    for seed in range(3):
        widths = space.sample(torch.Generator().manual_seed(seed))
        for side in Side:
            network = bcnet.supernet.build(model, space, widths, weights=(supernet, side))
            with torch.no_grad(), supernet.at(widths, side) as path:
                expected, found = path(*args, **kwargs), network(*args, **kwargs)
            torch.testing.assert_close(found, expected)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(*args, **kwargs)
        assert space.cost(widths).macs == counter.get_total_flops() / 2 / batch
        assert space.cost(widths).params == sum(p.numel() for p in network.parameters())


def test_inputs_stay_as_they_are():
    space = WidthSpace.trace(TwoPictures(), pictures())
    reasons = {held.name: held.reason for held in space.fixed if held.dim == 1}
    assert reasons["left.0.weight"] == reasons["right.0.weight"] == "the network's input"


def test_a_dict_holds_keyword_arguments_if_forward_has_them():
    left, right = pictures()
    space = WidthSpace.trace(TwoPictures(), {"right": right, "left": left})
    assert space.fingerprint() == WidthSpace.trace(TwoPictures(), (left, right)).fingerprint()


def test_a_batch_of_one_is_enough_where_batch_norm_needs_two():
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
    one, two = (WidthSpace.trace(model, torch.randn(count, 1, 6, 6)) for count in (1, 2))
    assert one.fingerprint() == two.fingerprint()
    assert one.reference == two.reference


def test_a_widened_network_is_tried_on_all_inputs():
    space = WidthSpace.trace(TwoPictures(), pictures(), widen=1.5)
    assert space.full == (12, 9)


def test_a_dict_for_a_network_without_these_arguments_is_explained():
    with pytest.raises(TraceError, match=r"forward needs a parameter for each key; it has none for up$"):
        WidthSpace.trace(TwoPictures(), pictures(), example_kwargs={"up": pictures()[0]})


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (None, "a tuple of all arguments; got NoneType"),
        (torch.zeros(3), r"a tensor \(batch, channels, ...\), or a tuple of all arguments; got \(3,\)"),
        ((), "got tuple"),
        (pictures()[:1], r"must run on the example input, shape \(2, 1, 6, 6\), and export.*missing 1 required"),
        ((pictures()[0], pictures()[0]), r"shape \(2, 1, 6, 6\) and \(2, 1, 6, 6\), and export"),
    ],
)
def test_what_is_no_call_is_told(example, message):
    with pytest.raises(TraceError, match=message):
        WidthSpace.trace(TwoPictures(), example)


class Tied(Tokens):
    """Gives a score for each token, by the rows of the embedding itself."""

    def forward(self, tokens, lengths):
        x = self.embedding(tokens) / lengths[:, None, None]
        return functional.linear(x, self.embedding.weight)


def test_rows_that_are_looked_up_stay_even_where_outputs_may_vary():
    space = WidthSpace.trace(Tied(), (torch.randint(20, (2, 7)), torch.tensor([3, 7])), vary_outputs=True)
    assert [(group.name, group.max_width) for group in space.groups] == [("embedding", 8)]
    network = bcnet.supernet.build(Tied(), space, space.narrowest)
    assert network(torch.arange(20)[None], torch.tensor([20])).shape == (1, 20, 20)


def test_a_narrow_embedding_says_how_wide_it_is():
    space = WidthSpace.trace(Tokens(), (torch.randint(20, (2, 7)), torch.tensor([3, 7])))
    network = bcnet.supernet.build(Tokens(), space, space.narrowest)
    assert network.embedding.embedding_dim == network.embedding.weight.shape[1] == space.narrowest[0]
    assert network.embedding.num_embeddings == 20


class Vectors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 32, 3, padding=1), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.b(torch.relu(self.a(x))).view(x.size(0), 4, 8, -1).permute(0, 1, 3, 2).reshape(x.size(0), -1, 8)
        return self.head(x / (x.norm(dim=-1, keepdim=True) + 1e-6)).mean(1)


@pytest.mark.parametrize("weights", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("images", [torch.contiguous_format, torch.channels_last])
def test_the_memory_format_of_weights_and_images_pins_nothing(weights, images):
    """A view that fails in channels-last memory, at some widths alone, runs in contiguous memory at all of them."""
    model = Vectors().to(memory_format=weights)
    space = WidthSpace.trace(model, torch.randn(2, 3, 8, 8).contiguous(memory_format=images))
    assert [group.name for group in space.groups] == ["a", "b"]
    assert model.b.weight.is_contiguous(memory_format=weights)
