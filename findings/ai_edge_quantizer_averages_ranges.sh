#!/bin/sh
# ai-edge-quantizer calibrates int8 ranges by a moving average over single inputs, and so cuts off what few of them reach.
#
# ai-edge-quantizer 0.10.0 with ai-edge-litert 2.3.0.
#
# `Quantizer.calibrate` takes smallest and largest value of every tensor for one input after the other, and moves each
# range by a twentieth towards that of the next input. The range is that of a typical input, then, and starts from the
# first one's: with few inputs it is hardly more. Outputs beyond it are cut off. Converters in TensorFlow take the whole
# range of all inputs. `Calibrator(..., qsv_update_func=qsv_utils.min_max_update)` does that here as well.
#
# Seen with a layer that gives its input back and 40 inputs of which every fourth reaches 8 and the others 1: 8 comes out
# as about 2.6 by `calibrate`, and as 8 by the whole range.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check 'numpy<3' \
    ai-edge-litert==2.3.0 ai-edge-quantizer==0.10.0
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as tfl
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import calibrator, quantizer, recipe, recipe_manager
from ai_edge_quantizer.utils import qsv_utils

CHANNELS = 4


def identity() -> bytes:
    """A float file of one linear layer that gives its input back."""
    model, graph, signature = tfl.ModelT(), tfl.SubGraphT(), tfl.SignatureDefT()
    model.version, model.description = 3, "identity"
    weights = tfl.BufferT()
    weights.data = np.frombuffer(np.eye(CHANNELS, dtype=np.float32).tobytes(), np.uint8)
    model.buffers, model.subgraphs = [tfl.BufferT(), weights], [graph]
    code = tfl.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = tfl.BuiltinOperator.FULLY_CONNECTED
    code.version = 1
    model.operatorCodes = [code]
    graph.tensors = []
    for name, shape, buffer in (("x", (1, CHANNELS), 0), ("w", (CHANNELS, CHANNELS), 1), ("y", (1, CHANNELS), 0)):
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


def largest(ranges) -> float:
    """What the largest input comes out as, of the int8 file with these ranges."""
    interpreter = Interpreter(model_content=bytes(job.quantize(ranges).quantized_model))
    interpreter.allocate_tensors()
    into, out = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    scale, zero = into["quantization"]
    whole = np.full((1, CHANNELS), 8, np.float32)
    interpreter.set_tensor(into["index"], np.clip(np.rint(whole / scale) + zero, -128, 127).astype(np.int8))
    interpreter.invoke()
    scale, zero = out["quantization"]
    return float(((interpreter.get_tensor(out["index"]).astype(np.float32) - zero) * scale).max())


with open("identity.tflite", "wb") as file:
    file.write(identity())
job, recipes = quantizer.Quantizer("identity.tflite"), recipe_manager.RecipeManager()
for loads in (job, recipes):
    loads.load_quantization_recipe(recipe.static_wi8_ai8())
inputs = [{"x": np.array([[-1, 0, 0.5, 8 if number % 4 == 3 else 1]], np.float32)} for number in range(40)]
averaged = largest(job.calibrate({"serving_default": inputs}))
measured = calibrator.Calibrator("identity.tflite", qsv_update_func=qsv_utils.min_max_update)
measured.calibrate({"serving_default": inputs}, recipes)
whole = largest(measured.get_model_qsvs())
print(f"8 comes out as {averaged:.2f} by calibrate(), and as {whole:.2f} by the whole range")
sys.exit(not (averaged < 4 and abs(whole - 8) < 0.2))
PYTHON
