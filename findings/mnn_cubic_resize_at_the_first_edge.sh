#!/bin/sh
# MNN enlarges by cubic interpolation with a wrong first row and column.
#
# MNN 3.6.1 (its Python package) with onnx 1.23.2.
#
# With half-pixel coordinates, as torch writes `interpolate(mode="bicubic")`, the first outputs of an enlargement lie
# before the first input, at -0.25 for a factor of two. Rounded down that is one step before the input and a fraction of
# 0.75. MNN takes the fraction, and the first input for its start, so that the value is that of 0.75. The other end, and
# the coordinates that begin at 0 (aligned corners, asymmetric), are right, and so is linear interpolation.
#
# Seen for 0, 1, ..., 5 enlarged to twice the length: the first output is 0.668, the same as the third, where ONNX's
# reference has -0.105; the other eleven are right. Three times: the first is 0.574 for -0.111.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6 onnx==1.23.2 MNN==3.6.1
cd "$work"
"$work/env/bin/python" - > log <<'PYTHON'
import sys

import _tools
import MNN.expr as expr
import MNN.nn as nn
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from onnx.reference import ReferenceEvaluator

x = np.arange(6, dtype=np.float32).reshape(1, 1, 1, 6)
seen = {}
for mode, coordinates, factor in (
    ("cubic", "half_pixel", 2),
    ("cubic", "half_pixel", 3),
    ("cubic", "align_corners", 2),
    ("cubic", "asymmetric", 2),
    ("linear", "half_pixel", 2),
):
    scales = numpy_helper.from_array(np.array([1, 1, 1, factor], np.float32), "scales")
    settings = {"cubic_coeff_a": -0.75} if mode == "cubic" else {}
    node = helper.make_node(
        "Resize", ["x", "", "scales"], ["y"], mode=mode, coordinate_transformation_mode=coordinates, **settings
    )
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 1, 6 * factor])],
        [scales],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    save(model, "one.onnx")
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0].ravel()
    _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", "one.onnx", "--MNNModel", "one.mnn"])
    manager = nn.create_runtime_manager(({"backend": "CPU", "numThread": 1, "precision": "high"},))
    network = nn.load_module_from_file("one.mnn", [], [], runtime_manager=manager)
    found = network.forward([expr.const(x, x.shape, expr.NCHW)])
    output = np.array(expr.convert(found[0] if isinstance(found, (list, tuple)) else found, expr.NCHW).read()).ravel()
    wrong = np.flatnonzero(np.abs(output - expected) > 1e-4).tolist()
    seen[mode, coordinates, factor] = (wrong, round(float(output[0]), 3), round(float(expected[0]), 3))
    print(f"seen: {mode}, {coordinates}, {factor}: wrong at {wrong}, first {output[0]:.3f} for {expected[0]:.3f}")
expected = {
    ("cubic", "half_pixel", 2): ([0], 0.668, -0.105),
    ("cubic", "half_pixel", 3): ([0], 0.574, -0.111),
    ("cubic", "align_corners", 2): ([], 0.0, 0.0),
    ("cubic", "asymmetric", 2): ([], 0.0, 0.0),
    ("linear", "half_pixel", 2): ([], 0.0, 0.0),
}
sys.exit(seen != expected)
PYTHON
grep "^seen" log
