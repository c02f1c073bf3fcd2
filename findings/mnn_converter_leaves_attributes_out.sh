#!/bin/sh
# MNN's converter leaves out attributes that its layers lack: dilation, antialiasing, and how a remainder rounds.
#
# MNN 3.6.1 (its Python package) with onnx 1.23.2, compared with onnxruntime 1.32.0.
#
# MNN's pooling has no dilation, its resizing no antialiasing, and its Mod rounds down, where ONNX's Mod with fmod=1
# rounds towards zero (torch.fmod). The converter reads past dilations, antialias and fmod and reports success. Pooling
# then has outputs of another shape; the two others have the right shape and other values.
#
# Seen: a 3 x 3 max pooling with dilation 2 of a 10 x 10 map gives 8 x 8 in place of 6 x 6; halving a map with
# antialias=1 is off by more than 0.1, without it by less than 1e-5; fmod is off by its divisor for negative numbers.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 \
  MNN==3.6.1
cd "$work"
"$work/env/bin/python" - > log <<'PYTHON'
import os
import sys

import _tools
import MNN.expr as expr
import MNN.nn as nn
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, save

random = np.random.default_rng(0)


def draw(*shape):
    return random.standard_normal(shape).astype(np.float32)


def outputs(nodes, constants, x, shape):
    """Return the size of the converted file, and the outputs of MNN and of ONNX Runtime."""
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), "one.onnx")
    (expected,) = onnxruntime.InferenceSession("one.onnx").run(None, {"x": x})
    _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", "one.onnx", "--MNNModel", "one.mnn"])
    manager = nn.create_runtime_manager(({"backend": "CPU", "numThread": 1, "precision": "high"},))
    size = os.path.getsize("one.mnn")
    try:
        network = nn.load_module_from_file("one.mnn", [], [], runtime_manager=manager)
    except SystemError:
        return size, None, expected
    found = network.forward([expr.const(x, x.shape, expr.NCHW)])
    found = found[0] if isinstance(found, (list, tuple)) else found
    return size, np.array(expr.convert(found, expr.NCHW).read()), expected


x = draw(1, 2, 10, 10)
nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[1, 1], dilations=[2, 2])]
_, found, expected = outputs(nodes, {}, x, [1, 2, 6, 6])
print(f"seen: dilated pooling: {found.shape}, expected {expected.shape}")
as_stated = found.shape == (1, 2, 8, 8) and expected.shape == (1, 2, 6, 6)

x = draw(1, 2, 8, 8)
for antialias, low, high in ((0, 0, 1e-5), (1, 0.1, 9)):
    nodes = [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=antialias)]
    _, found, expected = outputs(nodes, {"sizes": np.array([1, 2, 4, 4])}, x, [1, 2, 4, 4])
    off = float(abs(found - expected).max())
    print(f"seen: resizing, antialias {antialias}: off by {off:.2g}")
    as_stated = as_stated and low <= off <= high

nodes = [helper.make_node("Mod", ["x", "divisor"], ["y"], fmod=1)]
_, found, expected = outputs(nodes, {"divisor": np.float32(0.75).reshape(())}, x, [1, 2, 8, 8])
off = abs(found - expected)
print(f"seen: fmod: off by {off[x > 0].max():.2g} for positive and by {off[x < 0].mean():.2g} for negative numbers")
as_stated = as_stated and off[x > 0].max() < 1e-5 and abs(off[x < 0] - 0.75).max() < 1e-5
sys.exit(not as_stated)
PYTHON
grep "^seen" log
