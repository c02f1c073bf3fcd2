#!/bin/sh
# MNN's converter writes a file without layers, and reports success, if a network ends with a 3-D convolution and a ReLU.
#
# MNN 3.6.1 (its Python package) with onnx 1.23.2.
#
# Where the last layer is a ReLU (or a clip to [0, 6]) and follows a 3-D convolution, the file has 304 bytes: no weights and
# no layers. Loading it fails with a SystemError that names no reason. A sigmoid there, a layer behind, or a convolution in
# two dimensions are right.
#
# Seen: 3-D convolution and ReLU or clip: a file of less than 400 bytes, which cannot be loaded; the three others: right to
# 1e-4.
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


as_stated = True
cases = (("ReLU", 3, "Relu", True), ("clip", 3, "Clip", True), ("sigmoid", 3, "Sigmoid", False))
for name, dimensions, kind, empty in (*cases, ("ReLU", 2, "Relu", False), ("ReLU, sum", 3, "Add", False)):
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3] * dimensions, pads=[1] * 2 * dimensions)]
    constants = {"w": draw(5, 2, *[3] * dimensions)}
    if kind == "Clip":
        nodes.append(helper.make_node("Clip", ["c", "low", "high"], ["y"]))
        constants |= {"low": np.float32(0).reshape(()), "high": np.float32(6).reshape(())}
    elif kind == "Add":
        nodes += [helper.make_node("Relu", ["c"], ["r"]), helper.make_node("Add", ["r", "r"], ["y"])]
    else:
        nodes.append(helper.make_node(kind, ["c"], ["y"]))
    x = draw(1, 2, *[4] * dimensions)
    size, found, expected = outputs(nodes, constants, x, [1, 5, *[4] * dimensions])
    right = found is not None and bool(np.allclose(found, expected, atol=1e-4))
    print(f"seen: {dimensions}-D convolution, {name}: {size} bytes, {'not loaded' if found is None else right}")
    as_stated = as_stated and (found is None and size < 400 if empty else right)
sys.exit(not as_stated)
PYTHON
grep "^seen" log
