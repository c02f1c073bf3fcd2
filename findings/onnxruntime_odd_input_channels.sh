#!/bin/sh
# ONNX Runtime leaves its blocked kernels where a convolution's input channels are no multiple of 4.
#
# onnxruntime 1.32.0 on x86-64.
#
# On x86 its optimiser moves convolutions to a blocked layout (operators of the domain com.microsoft.nchwc). A convolution
# is taken where its *input* channels are a multiple of 4 and refused elsewhere; its output channels do not matter. A
# pruned network keeps whatever number the pruner chose: 64 -> 63 output channels cost nothing, 63 input channels cost
# more than 64 do, and a depthwise convolution of 63 channels about twice as much as one of 64.
#
# Seen on a 56x56 map, one thread, 3x3 kernels: 64 -> 64, 64 -> 63 and 60 -> 64 are blocked, 63 -> 64 and 62 -> 64 are
# not; depthwise 64 is blocked and 63 is not. Times relative to 64 -> 64 (printed, not checked): 63 -> 64 takes 1.26, 64 ->
# 63 takes 1.01; depthwise 63 takes 2.1 of depthwise 64.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check numpy onnx==1.23.2 onnxruntime==1.32.0
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import statistics
import sys
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

SIZE = 56
ort.set_default_logger_severity(3)


def session(channels: int, out: int, depthwise: bool) -> tuple[ort.InferenceSession, bool]:
    """A 1x1 convolution to `channels`, then a 3x3 one; and whether the second was moved to the blocked layout."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal((channels, 16, 1, 1), dtype=np.float32)
    second = rng.standard_normal((out, 1 if depthwise else channels, 3, 3), dtype=np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["between"], kernel_shape=[1, 1]),
        helper.make_node(
            "Conv", ["between", "second"], ["y"], name="second", kernel_shape=[3, 3], pads=[1] * 4,
            group=channels if depthwise else 1,
        ),
    ]
    graph = helper.make_graph(
        nodes, "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, SIZE, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, out, SIZE, SIZE])],
        [numpy_helper.from_array(first, "first"), numpy_helper.from_array(second, "second")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.optimized_model_filepath = "optimised.onnx"
    made = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    last = [node for node in onnx.load("optimised.onnx").graph.node if node.op_type == "Conv"][-1]
    return made, last.domain == "com.microsoft.nchwc"


CASES = [(64, 64, False), (64, 63, False), (60, 64, False), (63, 64, False), (62, 64, False), (64, 64, True), (63, 63, True)]
x = np.random.default_rng(1).standard_normal((1, 16, SIZE, SIZE), dtype=np.float32)
made = {case: session(*case) for case in CASES}
taken = {case: [] for case in CASES}
for _ in range(40):
    for case, (run, _) in made.items():
        start = time.perf_counter()
        run.run(None, {"x": x})
        taken[case].append(time.perf_counter() - start)
for (channels, out, depthwise), (_, blocked) in made.items():
    usual = statistics.median(taken[64, 64, depthwise][5:])
    share = statistics.median(taken[channels, out, depthwise][5:]) / usual
    kind = "depthwise " if depthwise else ""
    print(f"{kind}{channels} -> {out}: {'blocked' if blocked else 'not blocked'}, {share:.2f} of the time of 64")
sys.exit([blocked for _, blocked in made.values()] != [True, True, True, False, False, True, False])
PYTHON
