#!/bin/sh
# ncnn's output_names() is in the order of the file's layers, not in that of the model's outputs.
#
# pnnx 20261020 with ncnn 1.0.20261020 and onnx 1.23.2.
#
# pnnx names a model's outputs out0, out1, ... in the model's order. ncnn's Python Net.output_names() lists them as their
# layers come in the file. If a model returns (logits, features), the features are computed first, so that the first name
# is out1: whoever zips names with the model's outputs mixes them up, unseen where shapes agree.
#
# Seen for a model with the outputs (z, q), z computed from q: output_names() is ['out1', 'out0']; out0 is z.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
# pnnx asks for torch, which reading ONNX does without.
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6 onnx==1.23.2 ncnn==1.0.20261020
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps pnnx==20261020
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import glob
import subprocess
import sys

import ncnn
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from onnx.reference import ReferenceEvaluator

random = np.random.default_rng(0)
weights = {name: random.standard_normal((3, 3, 1, 1)).astype(np.float32) for name in ("first", "second")}
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["x", "first"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("Relu", ["c"], ["q"]),
        helper.make_node("Conv", ["q", "second"], ["z"], kernel_shape=[1, 1]),
    ],
    "two",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])],
    [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 4, 4]) for name in ("z", "q")],
    [numpy_helper.from_array(value, name) for name, value in weights.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
save(model, "two.onnx")
x = random.standard_normal((1, 3, 4, 4)).astype(np.float32)
z, q = ReferenceEvaluator(model).run(None, {"x": x})

(program,) = glob.glob("env/lib/python*/site-packages/pnnx/pnnx")
subprocess.run([program, "two.onnx", "inputshape=[1,3,4,4]", "fp16=0"], check=True, capture_output=True)
network = ncnn.Net()
network.load_param("two.ncnn.param")
network.load_model("two.ncnn.bin")
names = list(network.output_names())
extractor = network.create_extractor()
extractor.input("in0", ncnn.Mat(x[0]).clone())
found = {name: np.array(extractor.extract(name)[1]) for name in names}
right = np.allclose(found["out0"], z[0], atol=1e-2) and np.allclose(found["out1"], q[0], atol=1e-2)
print(f"seen: output_names() {names}; out0 is z and out1 is q: {right}")
sys.exit(names != ["out1", "out0"] or not right)
PYTHON
