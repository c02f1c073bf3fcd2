#!/bin/sh
# pnnx writes antialiased resizing and wrapped padding as the plain operators that ncnn has.
#
# pnnx 20261020 with ncnn 1.0.20261020 and onnx 1.23.2.
#
# ncnn's Interp has no antialiasing, and its Padding cannot wrap around. Where ONNX asks for it (Resize with antialias=1,
# Pad with mode "wrap", which circular convolutions come to), pnnx leaves the attribute out and writes Interp and
# Padding all the same, with zeros for what should wrap. It ends with code 0, shapes agree, and nothing is said.
#
# Seen on a 12 x 12 map, largest difference from the ONNX reference over the largest output: the plain operators below
# 1e-5, the two others above 0.1.
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

(pnnx,) = glob.glob("env/lib/python*/site-packages/pnnx/pnnx")
x = np.random.default_rng(0).standard_normal((1, 6, 12, 12)).astype(np.float32)
sizes = {"sizes": np.array([1, 6, 8, 8])}
pads = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
half = {"coordinate_transformation_mode": "half_pixel"}
cases = {
    "linear": ("Resize", ["maps", "", "", "sizes"], sizes, {"mode": "linear", **half}),
    "linear, antialiased": ("Resize", ["maps", "", "", "sizes"], sizes, {"mode": "linear", "antialias": 1, **half}),
    "padded": ("Pad", ["maps", "pads"], pads, {"mode": "constant"}),
    "wrapped": ("Pad", ["maps", "pads"], pads, {"mode": "wrap"}),
}
off = {}
for name, (kind, inputs, constants, attributes) in cases.items():
    weights = numpy_helper.from_array(np.eye(6, dtype=np.float32)[:, :, None, None], "weights")
    nodes = [
        helper.make_node("Conv", ["x", "weights"], ["maps"]),
        helper.make_node(kind, inputs, ["y"], **attributes),
    ]
    shape = [1, 6, 8, 8] if kind == "Resize" else [1, 6, 14, 14]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [weights, *(numpy_helper.from_array(value, key) for key, value in constants.items())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    save(model, "one.onnx")
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    done = subprocess.run([pnnx, "one.onnx", "inputshape=[1,6,12,12]", "fp16=0"], capture_output=True)
    network = ncnn.Net()
    loaded = network.load_param("one.ncnn.param"), network.load_model("one.ncnn.bin")
    extractor = network.create_extractor()
    extractor.input("in0", ncnn.Mat(x[0]).clone())
    output = np.array(extractor.extract("out0")[1])
    share = float(np.abs(output - expected[0]).max() / np.abs(expected).max())
    off[name] = (done.returncode, loaded, share < 1e-5, share > 0.1)
    print(f"{name}: pnnx ends with {done.returncode}, outputs off by {share:.2g}")
right, wrong = (0, (0, 0), True, False), (0, (0, 0), False, True)
sys.exit(off != {"linear": right, "linear, antialiased": wrong, "padded": right, "wrapped": wrong})
PYTHON
