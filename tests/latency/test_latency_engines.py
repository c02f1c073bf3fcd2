"""Engines: what is timed is what is exported."""

import numpy as np
import onnx
import pytest
import torch
from networks import tricky_network
from torch import nn

from bcnet.formats import Onnx
from bcnet.latency.engines import ENGINES, OnnxGraph, engine_of
from bcnet.machine.measure import CALLS
from bcnet.models import create
from bcnet.space import WidthSpace
from bcnet.supernet import build
from bcnet.tflite.litert import LiteRtFile

WITH_BATCH_NORM = {"resnet_digits": 8, "resnet20": 32, "vgg19_quarter": 32}


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_BATCH_NORM)
def test_the_timed_file_is_the_exported_one(name):
    size = WITH_BATCH_NORM[name]
    model = create(name, in_channels=1 if name == "resnet_digits" else 3, image_size=size).build().eval()
    images = torch.randn(2, 1 if name == "resnet_digits" else 3, size, size)
    space = WidthSpace.trace(model, images)
    graph = OnnxGraph()
    graph.write(model, images)
    for widths in (space.full, space.uniform(macs=0.5), space.narrowest):
        network = build(model, space, widths).eval()
        timed = graph.write(network, images)
        assert timed == Onnx().write(network, images, {})
    operators = {node.op_type for node in onnx.load_model_from_string(timed).graph.node}
    assert "Conv" in operators
    assert "BatchNormalization" not in operators  # folded, as in the file that is deployed


@pytest.mark.slow
def test_networks_whose_graph_holds_widths_are_exported_one_by_one():
    model, space, x = tricky_network("Halves")
    model, x = model.float().eval(), x.float()
    graph = OnnxGraph()
    graph.write(model, x)
    network = build(model, space, space.narrowest).eval()
    assert graph.write(network, x) == Onnx().write(network, x, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["litert:int8", "executorch:int8"])
def test_quantised_engines_run_what_the_network_computes(name, request):
    if name == "litert:int8":
        request.getfixturevalue("litert")
    pytest.importorskip(ENGINES[name].package)
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))
    model = nn.Sequential(*layers).eval()
    image = 4 * torch.rand(1, 1, 8, 8)
    content = engine_of(name).write(model, image)
    (found,) = CALLS[name](content, [image.numpy()], 1)()
    if found.dtype == np.int8:  # as the file holds it
        found = LiteRtFile(content).to_real(found)
    with torch.no_grad():
        expected = model(image).numpy()
    assert 0 < np.abs(found - expected).max() < 0.1 * np.abs(expected).max()
    assert len(content) < 0.6 * len(engine_of(name.partition(":")[0]).write(model, image))


def test_torch_times_networks_that_need_contiguous_images():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 8, 3))

    class View(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.head = network, nn.Linear(8 * 16, 2)

        def forward(self, x):
            x = self.features(x)
            return self.head(x.view(x.size(0), -1))

    engine_of("torch").prepare(View().eval(), torch.randn(2, 3, 8, 8), 1)()
