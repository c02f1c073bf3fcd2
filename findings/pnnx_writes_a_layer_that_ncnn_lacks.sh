#!/bin/sh
# pnnx writes ONNX's ReduceMax under its own name into ncnn's file, and says that all went well.
#
# pnnx 20261020 with ncnn 1.0.20261020 and onnx 1.23.2.
#
# ncnn has a layer Reduction that takes maxima, and pnnx uses it for ReduceMean of the same model. ReduceMax stays as
# "ReduceMax" in network.ncnn.param; pnnx ends with code 0, and only loading the file shows it: "layer ReduceMax not
# exists or registered", load_param returns -1. A converter's user has to look for names that
# ncnn.layer_to_index does not know.
#
# Seen: ReduceMean: code 0, layers known; ReduceMax: code 0, unknown ReduceMax.
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

(pnnx,) = glob.glob("env/lib/python*/site-packages/pnnx/pnnx")
seen = {}
for kind in ("ReduceMean", "ReduceMax"):
    weights = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "weights")
    axes = numpy_helper.from_array(np.array([2, 3]), "axes")
    nodes = [
        helper.make_node("Conv", ["x", "weights"], ["maps"]),
        helper.make_node(kind, ["maps", "axes"], ["y"], keepdims=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    graph = helper.make_graph(nodes, kind, [x], [y], [weights, axes])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), f"{kind}.onnx")
    done = subprocess.run([pnnx, f"{kind}.onnx", "inputshape=[1,3,8,8]"], capture_output=True)
    with open(f"{kind}.ncnn.param") as file:
        layers = [line.split()[0] for line in file.read().splitlines()[2:]]
    unknown = [layer for layer in layers if ncnn.layer_to_index(layer) == -1]
    loaded = ncnn.Net().load_param(f"{kind}.ncnn.param")
    seen[kind] = (done.returncode, unknown, loaded)
    print(f"{kind}: pnnx ends with {done.returncode}, layers {layers}, unknown {unknown}, load_param {loaded}")
sys.exit(seen != {"ReduceMean": (0, [], 0), "ReduceMax": (0, ["ReduceMax"], -1)})
PYTHON
