#!/bin/sh
# MNN's converter takes ReduceL2 and its like for reductions over all dimensions where ONNX gives the axes as an input.
#
# MNN 3.6.1 (its Python package) with onnx 1.23.2.
#
# Since opset 18 the axes of ONNX's reductions are an input, and torch's exporter writes them so. The converter reads that
# input of ReduceMean, ReduceMax, ReduceMin, ReduceProd and ReduceSum, and of ReduceL1, ReduceL2, ReduceSumSquare and
# ReduceLogSumExp it reads the attribute of older opsets alone. It reports success. The normalisation at the end of an
# embedding network (x / ReduceL2(x)) then divides by one number for the whole batch and still has its shape.
#
# Seen for an array (1, 6, 4, 4) and axes [1]: by ReduceMean (1, 1, 4, 4) and right, by the four others one number; with
# the attribute of opset 13 all five are right.
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

x = np.random.default_rng(0).standard_normal((1, 6, 4, 4)).astype(np.float32)
seen = {}
for kind in ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"):
    for opset in (18, 13):
        axes = [numpy_helper.from_array(np.array([1]), "axes")] if opset == 18 else []
        node = (
            helper.make_node(kind, ["x", "axes"], ["y"], keepdims=1)
            if opset == 18
            else helper.make_node(kind, ["x"], ["y"], keepdims=1, axes=[1])
        )
        graph = helper.make_graph(
            [node],
            "one",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 4, 4])],
            axes,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        save(model, "one.onnx")
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
        _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", "one.onnx", "--MNNModel", "one.mnn"])
        manager = nn.create_runtime_manager(({"backend": "CPU", "numThread": 1, "precision": "high"},))
        network = nn.load_module_from_file("one.mnn", [], [], runtime_manager=manager)
        found = network.forward([expr.const(x, x.shape, expr.NCHW)])
        output = np.array(expr.convert(found[0] if isinstance(found, (list, tuple)) else found, expr.NCHW).read())
        right = output.shape == expected.shape and bool(np.allclose(output, expected, atol=1e-4))
        seen[kind, opset] = (output.size, right)
        print(f"seen: {kind}, opset {opset}: {output.shape}, right {right}")
wrong = ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
expected = {(kind, 18): (1, False) if kind in wrong else (16, True) for kind in ("ReduceMean", *wrong)}
expected |= {(kind, 13): (16, True) for kind in ("ReduceMean", *wrong)}
sys.exit(seen != expected)
PYTHON
grep "^seen" log
