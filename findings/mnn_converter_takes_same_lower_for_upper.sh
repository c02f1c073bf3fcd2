#!/bin/sh
# MNN's converter pads SAME_LOWER at the end, as if it were SAME_UPPER.
#
# MNN 3.6.1 (its Python package) with onnx 1.23.2.
#
# Where ONNX's `auto_pad` needs an odd number of rows, SAME_UPPER puts the extra one behind the input and SAME_LOWER
# before it. The converter reports success for both and pads behind in both, so that every output of a layer with
# SAME_LOWER is of a window that lies one step further. Explicit `pads` of the same layer are right.
#
# Seen for a convolution, a maximum and an average over windows of 3 with step 2 on 10 x 10 values: SAME_LOWER gives what
# SAME_UPPER gives, to the last digit, and is wrong; SAME_UPPER, and the pads (1, 1, 0, 0) that SAME_LOWER means, are
# right. What is right is taken from explicit pads: ONNX's reference evaluator takes MaxPool's SAME_LOWER for SAME_UPPER
# itself.
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

rng = np.random.default_rng(0)
x = rng.standard_normal((1, 4, 10, 10)).astype(np.float32)
weights = numpy_helper.from_array(rng.standard_normal((4, 4, 3, 3)).astype(np.float32), "w")
seen = {}
for kind in ("Conv", "MaxPool", "AveragePool"):
    inputs = ["x", "w"] if kind == "Conv" else ["x"]
    outputs = {}
    expected = {}
    for name, pads in (
        ("before", {"pads": [1, 1, 0, 0]}),
        ("behind", {"pads": [0, 0, 1, 1]}),
        ("lower", {"auto_pad": "SAME_LOWER"}),
        ("upper", {"auto_pad": "SAME_UPPER"}),
    ):
        graph = helper.make_graph(
            [helper.make_node(kind, inputs, ["y"], strides=[2, 2], kernel_shape=[3, 3], **pads)],
            "one",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 5, 5])],
            [weights] if kind == "Conv" else [],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        save(model, "one.onnx")
        expected[name] = ReferenceEvaluator(model).run(None, {"x": x})[0]
        _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", "one.onnx", "--MNNModel", "one.mnn"])
        manager = nn.create_runtime_manager(({"backend": "CPU", "numThread": 1, "precision": "high"},))
        network = nn.load_module_from_file("one.mnn", [], [], runtime_manager=manager)
        found = network.forward([expr.const(x, x.shape, expr.NCHW)])
        found = found[0] if isinstance(found, (list, tuple)) else found
        outputs[name] = np.array(expr.convert(found, expr.NCHW).read())
    meant = {"before": "before", "behind": "behind", "lower": "before", "upper": "behind"}
    for name, pads in meant.items():
        output = outputs[name]
        seen[kind, name] = output.shape == (1, 4, 5, 5) and bool(np.allclose(output, expected[pads], atol=1e-4))
        print(f"seen: {kind}, {name}: right {seen[kind, name]}")
    seen[kind, "same"] = bool(np.array_equal(outputs["lower"], outputs["upper"]))
    seen[kind, "reference"] = bool(np.allclose(expected["lower"], expected["before"], atol=1e-4))
    print(f"seen: {kind}: lower and upper are equal: {seen[kind, 'same']}, reference right {seen[kind, 'reference']}")
right = {"before": True, "behind": True, "lower": False, "upper": True, "same": True}
wanted = {(kind, name): value for kind in ("Conv", "MaxPool", "AveragePool") for name, value in right.items()}
wanted |= {("Conv", "reference"): True, ("MaxPool", "reference"): False, ("AveragePool", "reference"): True}
sys.exit(seen != wanted)
PYTHON
grep "^seen" log
