#!/bin/sh
# MNN adds the bias of a transposed 3-D convolution to some depths of its output only.
#
# MNN 3.6.1 (its Python package) with onnx 1.23.2, compared with onnxruntime 1.32.0.
#
# The converter reports success, the file loads, and outputs have the right shape. The depths that only the earlier planes
# of the kernel reach lack the bias: every second one for kernel 2 and stride 2, as the decoder of a 3-D U-Net has it, and
# the first two for kernel 3 and stride 1. Kernels of 1 and two dimensions are right.
#
# Seen for 4 -> 6 channels and a map of 4 x 4 x 4: as above, to 1e-5.
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
lacking = {(3, 2, 2): [0, 2, 4, 6], (3, 3, 1): [0, 1], (3, 1, 1): [], (2, 2, 2): []}
for (dimensions, kernel, stride), depths in lacking.items():
    size = (4 - 1) * stride + kernel
    bias = draw(6)
    nodes = [
        helper.make_node(
            "ConvTranspose", ["x", "w", "b"], ["y"], kernel_shape=[kernel] * dimensions, strides=[stride] * dimensions
        )
    ]
    constants = {"w": draw(4, 6, *[kernel] * dimensions), "b": bias}
    x = draw(1, 4, *[4] * dimensions)
    _, found, expected = outputs(nodes, constants, x, [1, 6, *[size] * dimensions])
    lost = np.zeros_like(expected)
    lost[:, :, depths] = bias.reshape(1, 6, *[1] * dimensions)
    off = float(abs(expected - found - lost).max())
    print(f"seen: {dimensions}-D, kernel {kernel}: no bias at depths {depths}, elsewhere right, to {off:.1g}")
    as_stated = as_stated and off < 1e-5
sys.exit(not as_stated)
PYTHON
grep "^seen" log
