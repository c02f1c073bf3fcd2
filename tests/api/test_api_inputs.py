"""Networks with several inputs: two pictures and a token, as arguments in their order or by name."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from tiny_job import Recorder, StoppedError
from tiny_job import tiny_supernet_search as tiny_search
from torch import nn
from torch.utils.data import DataLoader, Dataset

import bcnet
from bcnet.costs import Latency
from bcnet.errors import DataError, TrainingError
from bcnet.latency import write_bundle
from bcnet.latency.engines import ENGINES, engine_of
from bcnet.machine import measure
from bcnet.run.inputs import Input, InputFacts, describe_inputs
from bcnet.space import Side, WidthSpace
from bcnet.supernet import Supernet, build


class Pair(nn.Module):
    """Whether two pictures are of the same kind, seen through a token."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3), nn.ReLU()
        )
        self.embedding = nn.Embedding(5, 6)
        self.head = nn.Linear(30, 3)

    def forward(self, left, right, token):
        parts = [self.tower(picture).mean((2, 3)) for picture in (left, right)]
        return self.head(torch.cat([*parts, self.embedding(token)], 1))


class Pairs(Dataset):
    def __init__(self, count: int, by_name: bool, spoilt: int | None = None) -> None:
        generator = torch.Generator().manual_seed(count)
        self.labels = torch.arange(count) % 3
        shifts = self.labels[:, None, None, None]
        self.left, self.right = (torch.randn(count, 1, 8, 8, generator=generator) + side * shifts for side in (1, -1))
        self.token = torch.randint(5, (count,), generator=generator)
        self.by_name = by_name
        if spoilt is not None:
            self.right[spoilt] = torch.nan

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, number):
        token, left, right = (part[number] for part in (self.token, self.left, self.right))
        inputs = {"token": token, "left": left, "right": right} if self.by_name else (left, right, token)
        return inputs, self.labels[number]


def loaders(by_name=False, **changes):
    parts = {"train": (48, True), "validation": (24, False), "test": (20, False)}
    made = {name: DataLoader(Pairs(n, by_name), 12, shuffle=mixed) for name, (n, mixed) in parts.items()}
    return bcnet.Loaders(**{**made, **changes})


def inputs_of(by_name, count=4):
    batch = next(iter(DataLoader(Pairs(24, by_name), count)))[0]
    return batch if by_name else tuple(batch)


@pytest.mark.slow
@pytest.mark.parametrize("by_name", [False, True])
def test_a_run_goes_from_data_to_files_and_a_killed_one_ends_alike(tmp_path, by_name):
    pytest.importorskip("onnxruntime")
    whole = tiny_search(tmp_path / "whole", model=Pair, data=loaders(by_name))
    for stop in (("supernet", 3), ("evolution", 2), ("original", 3)):
        with pytest.raises(StoppedError):
            tiny_search(
                tmp_path / "killed", model=Pair, data=loaders(by_name), reporter=Recorder(stop), checkpoint_seconds=0
            )
    tiny_search(tmp_path / "killed", model=Pair, data=loaders(by_name))
    for name in ("supernet", "final"):
        files = (tmp_path / run / f"{name}.safetensors" for run in ("whole", "killed"))
        assert len({file.read_bytes() for file in files}) == 1
    network, inputs = bcnet.load(tmp_path / "whole", Pair), inputs_of(by_name)
    assert whole.result.networks["searched"].macs_ratio <= 0.5
    expected = network(**inputs) if by_name else network(*inputs)
    for form in ("onnx", "pt2", "safetensors"):
        export = bcnet.export_run(tmp_path / "whole", Pair, format=form)
        assert export.difference < 1e-5
    names = {"token", "left", "right"}
    session = pytest.importorskip("onnxruntime").InferenceSession(
        (tmp_path / "whole" / "export" / "network.onnx").read_bytes()
    )
    assert {value.name for value in session.get_inputs()} == names
    order = inputs if by_name else dict(zip(("left", "right", "token"), inputs, strict=True))
    found = session.run(None, {name: tensor.numpy() for name, tensor in order.items()})[0]
    assert torch.allclose(torch.from_numpy(found), expected, atol=1e-5)
    card = (tmp_path / "whole" / "model_card.md").read_text()
    assert ("`token`, int64 below 5 `(batch)`" if by_name else "3 arguments in this order: floats") in card
    assert bcnet.measure_latency(tmp_path / "whole", Pair, rounds=2).milliseconds["searched"].median > 0
    supernet = bcnet.Run.open(tmp_path / "whole").supernet(Pair)
    assert supernet(inputs, supernet.space.narrowest, Side.RIGHT).shape == (4, 3)


def test_a_path_of_several_inputs_is_the_built_network():
    by_position, by_name = inputs_of(False), inputs_of(True)
    torch.manual_seed(0)
    model = Pair()
    space = WidthSpace.trace(model, by_position)
    supernet = Supernet(model, space)
    for side in Side:
        widths = tuple(group.choices[1] for group in space.groups)
        network = build(model, space, widths, weights=(supernet, side)).train()
        expected = network(*by_position)
        assert torch.equal(supernet(by_position, widths, side), expected)
        assert torch.equal(supernet(by_name, widths, side), expected)


@pytest.mark.parametrize("by_name", [False, True])
def test_what_a_network_takes_is_kept_in_its_run(by_name, tmp_path):
    inputs = inputs_of(by_name, 24)
    facts = InputFacts(describe_inputs(inputs), ("a",), None)
    again = InputFacts.from_dict(json.loads(json.dumps(facts.to_dict())), tmp_path)
    assert again == facts
    parts = again.inputs if by_name else dict(zip(("left", "right", "token"), again.inputs, strict=True))
    assert parts["token"] == Input((), "int64", 5)
    assert parts["left"] == Input((1, 8, 8))
    drawn = again.draw_random(64, torch.Generator().manual_seed(0))
    token = drawn["token"] if by_name else drawn[2]
    assert (token.dtype, token.unique().tolist()) == (torch.int64, [0, 1, 2, 3, 4])


@pytest.mark.parametrize("by_name", [False, True])
def test_a_bad_step_of_several_inputs_stops_the_run(tmp_path, by_name):
    spoilt = loaders(by_name, train=DataLoader(Pairs(48, by_name, spoilt=5), 12, shuffle=True))
    with pytest.raises(TrainingError, match="nothing of it reached the weights"):
        tiny_search(tmp_path, model=Pair, data=spoilt)


def by_two(world, folder):
    return tiny_search(folder, model=Pair, data=loaders(True)).widths


@pytest.mark.slow
def test_two_processes_share_the_batches(processes, tmp_path):
    first, second = processes.run(2, by_two, tmp_path / "two")
    assert first == second


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(e, marks=[pytest.mark.slow] if e in ("litert", "executorch") else [])
        for e in sorted(set(ENGINES) - {"cuda", "ncnn", "litert:int8", "executorch:int8"})
    ],
)
def test_engines_run_several_inputs(engine, by_name, request):
    pytest.importorskip(ENGINES[engine].package)
    if engine == "litert":
        request.getfixturevalue("litert")
    inputs, network = inputs_of(by_name), Pair().eval()
    found = engine_of(engine).prepare(network, inputs, 1)()
    found = found if isinstance(found, torch.Tensor) else torch.as_tensor(np.asarray(found[0]))
    torch.testing.assert_close(found, network(**inputs) if by_name else network(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("by_name", [False, True])
def test_a_bundle_says_what_to_draw(tmp_path, by_name):
    pytest.importorskip("onnxruntime")
    latency = Latency("onnxruntime", batch=2)
    write_bundle(Pair(), inputs_of(by_name), tmp_path / "bundle", latency=latency, networks=12)
    facts = json.loads((tmp_path / "bundle" / "bundle.json").read_text())["inputs"]
    drawn = measure.draw_inputs(facts)
    measure.CALLS["onnxruntime"](tmp_path / "bundle" / "network_00.onnx", drawn, 1)()
    token = drawn["token"] if by_name else drawn[2]
    assert token.shape == (2,)
    assert token.dtype.name == "int64"
    assert 0 <= token.min() <= token.max() < 5


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (({"left": [1.0]}, torch.zeros(2)), "a tuple or dict of them; got dict of list"),
        (((), torch.zeros(2)), "a tuple or dict of them; got tuple of nothing"),
        (((torch.zeros(2, 1), torch.zeros(3, 1)), torch.zeros(2).long()), r"got \[0\] torch.float32 \(2, 1\), \[1\]"),
        ((torch.zeros(2, 1, 4, 4).byte(), torch.zeros(2).long()), "got torch.uint8 .* ToTensor makes floats"),
        ((torch.zeros(2, 1, 4, 4).long(), torch.zeros(2).long()), "got torch.int64 .* ToTensor makes floats"),
        ((torch.zeros(2, 1, 4, 4), (torch.zeros(2).long(),) * 2), "one tensor for this task; got a tuple of 2"),
    ],
)
def test_batches_of_another_form_are_told(batch, message):
    data = dataclasses.replace(loaders(), validation=[batch], accepted=bcnet.tasks.Classification().check_targets)
    with pytest.raises(DataError, match=message):
        _ = data.held_out
