#!/bin/sh
# pnnx reads an ONNX reduction over one axis as one over none, and the file that ncnn gets reduces nothing.
#
# pnnx 20261020 with ncnn 1.0.20261020 and onnx 1.23.2.
#
# The mean over channels, as in spatial attention (CBAM) and in normalisation by the root mean square, is a ReduceMean with
# axes [1]. pnnx writes ncnn's Reduction with an empty list of axes for it; ncnn gives its input back. The same for one of
# height and width. pnnx ends with code 0, the file loads, and where the mean is multiplied with the map again even the
# shapes agree. Two axes, as of global pooling, are written rightly; so is one axis of a TorchScript file.
#
# Seen for a map of 6 channels, 4 x 4: axes [2, 3] become "-23303=2,1,2" and 6 numbers, axes [1] "-23303=0" and all 96.
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
x = np.random.default_rng(0).standard_normal((1, 6, 4, 4)).astype(np.float32)
seen = {}
for axes in ([2, 3], [1]):
    weights = numpy_helper.from_array(np.eye(6, dtype=np.float32)[:, :, None, None], "weights")
    nodes = [
        helper.make_node("Conv", ["x", "weights"], ["maps"]),
        helper.make_node("ReduceMean", ["maps", "axes"], ["y"], keepdims=1),
    ]
    shape = [1 if d in axes else size for d, size in enumerate(x.shape)]
    graph = helper.make_graph(
        nodes,
        "means",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [weights, numpy_helper.from_array(np.array(axes), "axes")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), "means.onnx")
    done = subprocess.run([pnnx, "means.onnx", "inputshape=[1,6,4,4]", "fp16=0"], capture_output=True)
    with open("means.ncnn.param") as file:
        (written,) = (word for line in file if line.startswith("Reduction") for word in line.split() if "-23303" in word)
    network = ncnn.Net()
    loaded = network.load_param("means.ncnn.param"), network.load_model("means.ncnn.bin")
    extractor = network.create_extractor()
    extractor.input("in0", ncnn.Mat(x[0]).clone())
    output = np.array(extractor.extract("out0")[1])
    expected = x.mean(axis=tuple(axes), keepdims=True)[0]
    right = output.shape == expected.shape and bool(np.allclose(output, expected, atol=1e-5))
    unchanged = output.shape == x[0].shape and bool(np.allclose(output, x[0], atol=1e-5))
    seen[tuple(axes)] = (done.returncode, loaded, written, right, unchanged)
    print(f"axes {axes}: pnnx ends with {done.returncode}, {written}, {output.size} numbers, right {right}, "
          f"the input again {unchanged}")
sys.exit(seen != {
    (2, 3): (0, (0, 0), "-23303=2,1,2", True, False),
    (1,): (0, (0, 0), "-23303=0", False, True),
})
PYTHON
