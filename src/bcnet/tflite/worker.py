"""Convert networks in a separate process: the script behind `bcnet.tflite.converter`.

It needs torch and litert-torch, tflite-micro for the facts of an arena, and nothing of bcnet. A request is a line of
JSON on standard input, `{"do": "convert", ...}`, and the reply a line on standard output. Output of the packages goes
to standard error.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SIGNATURE = "serving_default"
_ARENA = 64 * 2**20  # bytes available to tflite-micro, which reports how many it used
_SCALE = 12  # bytes of a scale and a zero point
_PER_CHANNEL = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")


def convert(program: str, out: str, samples: str | None = None) -> dict[str, Any]:
    """Write a `torch.export` program as a .tflite file: fp32, or int8 with the ranges of `samples` (.npz)."""
    import litert_torch
    import torch

    exported = torch.export.load(program)
    args, kwargs = exported.example_inputs
    model = litert_torch.convert(exported.module(), args, sample_kwargs=kwargs or None)
    unquantized = f"{out}.fp32"
    model.export(unquantized)
    if samples is None:
        Path(out).write_bytes(_strip_names(Path(unquantized).read_bytes()))
        Path(unquantized).unlink()
        return {}
    import numpy as np
    from ai_edge_quantizer import calibrator, quantizer, recipe, recipe_manager
    from ai_edge_quantizer.utils import qsv_utils

    chosen = recipe.static_wi8_ai8()
    job = quantizer.Quantizer(unquantized)
    job.load_quantization_recipe(chosen)
    recipes = recipe_manager.RecipeManager()
    recipes.load_quantization_recipe(chosen)
    with np.load(samples) as arrays:
        batches = [dict(zip(arrays.files, rows)) for rows in zip(*(arrays[name] for name in arrays.files))]  # noqa: B905
    # `Quantizer.calibrate` averages the ranges of single inputs, which clips rare values.
    ranges = calibrator.Calibrator(unquantized, num_threads=1, qsv_update_func=qsv_utils.min_max_update)
    ranges.calibrate({_SIGNATURE: batches}, recipes)
    quantized = job.quantize(ranges.get_model_qsvs()).quantized_model
    Path(out).write_bytes(_strip_names(bytes(quantized)))
    Path(unquantized).unlink()
    return {}


def _strip_names(content: bytes) -> bytes:
    """Return the file with its constants inside, and without names except those of inputs and outputs.

    From 256 KiB the quantiser appends constants to the file, where tflite-micro does not look: it would treat the
    weights as empty tensors and compute nonsense. Names are those of the user's modules, kilobytes of them.
    """
    import flatbuffers
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(content, 0)
    for buffer in model.buffers:
        if buffer.offset:
            buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    for graph in model.subgraphs:
        outer = {*map(int, graph.inputs), *map(int, graph.outputs)}
        for number, tensor in enumerate(graph.tensors):
            if number not in outer:
                tensor.name = ""
    # The file identifier is what readers recognise the format by.
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def describe(file: str) -> dict[str, Any]:
    """Return the tensors of a file that tflite-micro plans, with their lifetimes, and the memory it uses.

    `tensors` are `[shape, bytes of an element, first operator, last operator]`. `channels` are the output channels of
    each operator with a scale per channel. `arena` are the bytes used: `head` for tensors, `tail` for persistent data.
    `constants` are `[shape, bytes of an element]`, including scales. `file` are the bytes of the file.
    """
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(Path(file).read_bytes(), 0)
    (graph,) = model.subgraphs
    constant = {n for n, tensor in enumerate(graph.tensors) if model.buffers[tensor.buffer].data is not None}
    first: dict[int, int] = dict.fromkeys(map(int, graph.inputs), 0)
    last = dict(first)
    operators = []
    channels = []
    for moment, operator in enumerate(graph.operators, 1):
        code = model.operatorCodes[operator.opcodeIndex]
        name = _operator_name(schema, max(code.builtinCode, code.deprecatedBuiltinCode))
        operators.append(name)
        for number in map(int, operator.outputs):
            first.setdefault(number, moment)
        last.update(dict.fromkeys((n for n in map(int, (*operator.inputs, *operator.outputs)) if n >= 0), moment))
        if name in _PER_CHANNEL:
            channels.append(int(graph.tensors[operator.outputs[0]].shape[-1]))
    last.update(dict.fromkeys(map(int, graph.outputs), len(operators)))
    tensors = [
        [[int(size) for size in graph.tensors[n].shape], _bytes_of(schema, graph.tensors[n].type), first[n], last[n]]
        for n in sorted(first)
        if n not in constant
    ]
    used = dict.fromkeys(int(n) for operator in graph.operators for n in operator.inputs if n >= 0)  # in order
    constants = [
        [[int(size) for size in graph.tensors[n].shape], _bytes_of(schema, graph.tensors[n].type)]
        for n in used
        if n in constant
    ]
    for number in used:
        quantization = graph.tensors[number].quantization
        if quantization is not None and quantization.scale is not None and len(quantization.scale) > 1:
            constants.append([[len(quantization.scale)], _SCALE])
    return {
        "operators": operators,
        "tensors": tensors,
        "channels": channels,
        "constants": constants,
        "arena": _arena(file),
        "file": Path(file).stat().st_size,
    }


def _operator_name(schema: Any, code: int) -> str:
    return next(str(name) for name, value in vars(schema.BuiltinOperator).items() if value == code)


def _bytes_of(schema: Any, kind: int) -> int:
    name = next(name for name, value in vars(schema.TensorType).items() if value == kind)
    if name == "BOOL":
        return 1
    found = re.search(r"\d+", name)
    return int(found[0]) // 8 if found else 1


def _arena(file: str) -> dict[str, int]:
    """Return what tflite-micro reports, in a separate process, since it prints to the terminal."""
    script = (
        f"from tflite_micro import runtime\nruntime.Interpreter.from_file({file!r}, arena_size={_ARENA})"
        ".print_allocations()"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    output = found.stdout + found.stderr
    figures = dict(re.findall(r"Arena allocation (head|tail|total) (\d+)", output))
    if found.returncode or len(figures) < 3:
        lines = [line for line in output.splitlines() if line.strip()]
        raise RuntimeError(f"tflite-micro refuses the file: {lines[-1] if lines else found.returncode}")
    return {name: int(value) for name, value in figures.items()}


def run(file: str, inputs: str, out: str) -> dict[str, Any]:
    """Run an int8 file in tflite-micro on rows of `inputs` (.npz) as stored in its inputs; write the outputs (.npz)."""
    import numpy as np
    from tflite_micro import runtime

    interpreter = runtime.Interpreter.from_file(file, arena_size=_ARENA)
    with np.load(inputs) as arrays:
        rows = [arrays[name] for name in arrays.files]
    results = []
    for number in range(len(rows[0])):
        for place, row in enumerate(rows):
            interpreter.set_input(row[number], place)
        interpreter.invoke()
        results.append(interpreter.get_output(0).copy())
    np.savez(out, outputs=np.stack(results))
    return {}


def versions() -> dict[str, Any]:
    """Import what the other functions need, and return the versions."""
    from importlib import metadata

    import litert_torch  # noqa: F401

    found = {}
    for package in ("litert-torch", "ai-edge-litert", "ai-edge-quantizer", "tflite-micro"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


_REQUESTS: dict[str, Callable[..., dict[str, Any]]] = {
    "convert": convert,
    "describe": describe,
    "run": run,
    "versions": versions,
}


def main() -> int:
    """Answer requests until standard input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # replies use the original standard output
    for line in sys.stdin:
        request = json.loads(line)
        reply: dict[str, Any]
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                reply = {"done": _REQUESTS[request.pop("do")](**request)}
        except Exception as error:
            lines = [part.strip() for part in str(error).splitlines() if part.strip()]
            reply = {"error": f"{type(error).__name__}: {lines[0] if lines else ''}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
