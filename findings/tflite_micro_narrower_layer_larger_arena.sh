#!/bin/sh
# tflite-micro takes more memory for a network with a narrower layer.
#
# tflite-micro 0.dev20261023182759 (its Python package) on x86-64, int8 convolutions.
#
# Its planner places the tensors of a graph by size, the largest first, and of equally large ones the later one first. In
# a chain of convolutions of one width two places are enough: each tensor lies where the last but one has lain. Where one
# layer in the middle is narrower, its tensor is placed last: the wide ones before and after it have taken places that do
# not fit together, and it gets a third one. So fewer channels need more memory, and a search of widths, or a pruner,
# cannot take a smaller network for one that fits.
#
# Seen on a 16 x 16 map, seven 1 x 1 convolutions: all of 64 channels take 32,768 bytes for tensors, with 60 in the third
# 48,128, and with 60 in the fourth 32,768 again.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check 'numpy<3' \
    ai-edge-litert==2.3.0 tflite-micro==0.dev20261023182759
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import re
import subprocess
import sys

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as tfl

SIZE = 16


def chain(channels: list[int]) -> bytes:
    """An int8 file of 1 x 1 convolutions from `channels[0]` to `channels[1]`, and so on."""
    model, graph = tfl.ModelT(), tfl.SubGraphT()
    model.version, model.description = 3, "chain"
    model.buffers, model.subgraphs = [tfl.BufferT()], [graph]
    code = tfl.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = tfl.BuiltinOperator.CONV_2D
    code.version = 3
    model.operatorCodes = [code]
    graph.tensors, graph.operators = [], []

    def tensor(name, shape, kind, scales, content=None):
        made = tfl.TensorT()
        made.name, made.shape, made.type = name, list(shape), kind
        made.quantization = tfl.QuantizationParametersT()
        made.quantization.scale, made.quantization.zeroPoint = list(scales), [0] * len(scales)
        made.buffer = 0
        if content is not None:
            buffer = tfl.BufferT()
            buffer.data = np.frombuffer(content.tobytes(), np.uint8)
            model.buffers.append(buffer)
            made.buffer = len(model.buffers) - 1
        graph.tensors.append(made)
        return len(graph.tensors) - 1

    rng = np.random.default_rng(0)
    last = tensor("in", (1, SIZE, SIZE, channels[0]), tfl.TensorType.INT8, [0.1])
    graph.inputs = [last]
    for number, (into, out) in enumerate(zip(channels, channels[1:])):
        weights = rng.integers(-9, 9, (out, 1, 1, into), dtype=np.int8)
        kernel = tensor(f"w{number}", weights.shape, tfl.TensorType.INT8, [0.01] * out, weights)
        bias = tensor(f"b{number}", (out,), tfl.TensorType.INT32, [0.001] * out, np.arange(out, dtype=np.int32) + number)
        made = tensor(f"y{number}", (1, SIZE, SIZE, out), tfl.TensorType.INT8, [0.1])
        operator = tfl.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = 0, [last, kernel, bias], [made]
        operator.builtinOptionsType = tfl.BuiltinOptions.Conv2DOptions
        options = tfl.Conv2DOptionsT()
        options.strideW = options.strideH = options.dilationWFactor = options.dilationHFactor = 1
        operator.builtinOptions = options
        graph.operators.append(operator)
        last = made
    graph.outputs = [last]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def taken(channels: list[int]) -> int:
    """Bytes that tflite-micro takes for the tensors."""
    with open("chain.tflite", "wb") as file:
        file.write(chain(channels))
    script = "from tflite_micro import runtime; runtime.Interpreter.from_file('chain.tflite', arena_size=2**22).print_allocations()"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return int(re.search(r"Arena allocation head (\d+)", told.stdout + told.stderr)[1])


whole = [16] + [64] * 7
found = {"all 64": taken(whole)}
for place in (3, 4):
    found[f"60 in layer {place}"] = taken(whole[:place] + [60] + whole[place + 1 :])
for name, size in found.items():
    print(f"{name}: {size:,} bytes for tensors")
sys.exit(not (found["60 in layer 3"] > found["60 in layer 4"] == found["all 64"] == 2 * SIZE * SIZE * 64))
PYTHON
