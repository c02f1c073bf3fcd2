#!/bin/sh
# onnx's version converter writes reductions that the version it converts to does not know.
#
# onnx 1.23.2 with onnxruntime 1.32.0.
#
# In opset 18 ReduceMean got its axes as an input, and an attribute `noop_with_empty_axes`. Converted to 17 the axes
# become an attribute again, and `noop_with_empty_axes=0` stays, which ReduceMean of 17 does not have: onnx's own checker
# refuses the model, and onnxruntime does not load it. Without that attribute, which is at its default, both take it.
#
# Seen: "Unrecognized attribute: noop_with_empty_axes for operator ReduceMean" from the checker and from onnxruntime.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check 'numpy<3' onnx==1.23.2 onnxruntime==1.32.0
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, checker, helper, numpy_helper, version_converter

axes = numpy_helper.from_array(np.array([2, 3]), "axes")
mean = helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0, noop_with_empty_axes=0)
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 5, 5])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
graph = helper.make_graph([mean], "mean", [x], [y], [axes])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
checker.check_model(model, full_check=True)


def refused(model: onnx.ModelProto) -> tuple[bool, bool]:
    """Whether onnx's checker and onnxruntime refuse a model."""
    found = []
    for take in (
        lambda: checker.check_model(model),
        lambda: onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]),
    ):
        try:
            take()
            found.append(False)
        except Exception as error:
            print(f"  {str(error).strip().splitlines()[0][:110]}")
            found.append(True)
    return tuple(found)


converted = version_converter.convert_version(model, 17)
(node,) = (one for one in converted.graph.node if one.op_type == "ReduceMean")
print("converted to 17:", [attribute.name for attribute in node.attribute])
as_converted = refused(converted)
kept = [attribute for attribute in node.attribute if attribute.name != "noop_with_empty_axes"]
del node.attribute[:]
node.attribute.extend(kept)
print("without noop_with_empty_axes:", [attribute.name for attribute in node.attribute])
mended = refused(converted)
print("refused by checker and onnxruntime:", as_converted, "and then", mended)
sys.exit((as_converted, mended) != ((True, True), (False, False)))
PYTHON
