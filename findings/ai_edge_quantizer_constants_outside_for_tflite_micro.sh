#!/bin/sh
# From 256 KiB of weights on, ai-edge-quantizer writes int8 files that tflite-micro runs without its weights.
#
# ai-edge-quantizer 0.10.0 with ai-edge-litert 2.3.0, tflite-micro 0.dev20261023182759 (its Python package) on x86-64.
#
# The quantiser then puts constants behind the flatbuffer and says where by offset and length, as the format allows.
# LiteRT reads them there. tflite-micro does not: it takes a weight for a tensor without content, gives it room in the
# arena, and computes with what lies there. There is no error; the arena is larger by all weights.
#
# Seen with one linear layer of 600 x 600 weights: LiteRT gives its input back, tflite-micro something else, with an
# arena of more than 360,000 bytes. A layer of 400 x 400 weights is right in both.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check 'numpy<3' \
    ai-edge-litert==2.3.0 ai-edge-quantizer==0.10.0 \
    tflite-micro==0.dev20261023182759
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as tfl
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import quantizer, recipe
from tflite_micro import runtime


def identity(channels: int) -> bytes:
    """A float file of one linear layer that gives its input back."""
    model, graph, signature = tfl.ModelT(), tfl.SubGraphT(), tfl.SignatureDefT()
    model.version, model.description = 3, "identity"
    weights = tfl.BufferT()
    weights.data = np.frombuffer(np.eye(channels, dtype=np.float32).tobytes(), np.uint8)
    model.buffers, model.subgraphs = [tfl.BufferT(), weights], [graph]
    code = tfl.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = tfl.BuiltinOperator.FULLY_CONNECTED
    code.version = 1
    model.operatorCodes = [code]
    graph.tensors = []
    for name, shape, buffer in (("x", (1, channels), 0), ("w", (channels, channels), 1), ("y", (1, channels), 0)):
        tensor = tfl.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name, list(shape), tfl.TensorType.FLOAT32, buffer
        graph.tensors.append(tensor)
    operator = tfl.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = 0, [0, 1, -1], [2]
    operator.builtinOptionsType = tfl.BuiltinOptions.FullyConnectedOptions
    operator.builtinOptions = tfl.FullyConnectedOptionsT()
    graph.operators, graph.inputs, graph.outputs = [operator], [0], [2]
    for name, number in (("x", 0), ("y", 2)):
        place = tfl.TensorMapT()
        place.name, place.tensorIndex = name, number
        setattr(signature, "inputs" if name == "x" else "outputs", [place])
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0
    model.signatureDefs = [signature]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def compare(channels: int) -> tuple[int, float, float]:
    """Constants behind the flatbuffer, and how far LiteRT and tflite-micro are from the input, as a share of it."""
    with open("float.tflite", "wb") as file:
        file.write(identity(channels))
    job = quantizer.Quantizer("float.tflite")
    job.load_quantization_recipe(recipe.static_wi8_ai8())
    given = np.linspace(-1, 1, channels, dtype=np.float32)[None]
    content = bytes(job.quantize(job.calibrate({"serving_default": [{"x": given}]})).quantized_model)
    with open("int8.tflite", "wb") as file:
        file.write(content)
    outside = sum(bool(buffer.offset) for buffer in tfl.ModelT.InitFromPackedBuf(content, 0).buffers)
    lite = Interpreter("int8.tflite")
    lite.allocate_tensors()
    into, out = lite.get_input_details()[0], lite.get_output_details()[0]
    scale, zero = into["quantization"]
    stored = np.clip(np.rint(given / scale) + zero, -128, 127).astype(np.int8)
    lite.set_tensor(into["index"], stored)
    lite.invoke()
    micro = runtime.Interpreter.from_file("int8.tflite", arena_size=2**22)
    micro.set_input(stored, 0)
    micro.invoke()
    scale, zero = out["quantization"]
    found = [(y.astype(np.float32) - zero) * scale for y in (lite.get_tensor(out["index"]), micro.get_output(0))]
    return outside, *(float(np.abs(y - given).max()) for y in found)


small, large = compare(400), compare(600)
for channels, (outside, lite, micro) in ((400, small), (600, large)):
    print(f"{channels} x {channels}: {outside} constants outside, off by {lite:.3f} in LiteRT, {micro:.3f} in tflite-micro")
sys.exit(not (small[0] == 0 and max(small[1:]) < 0.05 and large[0] > 0 and large[1] < 0.05 < 0.5 < large[2]))
PYTHON
