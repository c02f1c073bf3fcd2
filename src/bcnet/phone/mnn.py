"""MNN: networks converted from their ONNX file by MNN's own converter, run on the CPU in float32."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bcnet.errors import ExportError
from bcnet.formats import Format, Onnx, Opened, Runner, import_package
from bcnet.machine.measure import MnnFile, suppress_output
from bcnet.pytree import Pytree, arguments

_import = partial(import_package, need="MNN is a package of its own", extra="mnn")
# The module `MNN.tools.mnnconvert` installs a package when it is imported; the compiled one does not.
_CONVERT = """
import sys
import MNN
import _tools
source, target = sys.argv[1:]
_tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", source, "--MNNModel", target, "--bizCode", "bcnet"])
print("made as", MNN.get_model_uuid(target))
"""

_REDUCING = ("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare")
_FOREIGN = re.compile(r"These Op Not Support: *(?:ONNX::)?([\w.:]+)")


def check_installed() -> None:
    """Raise ExportError unless MNN is installed; its first import prints processor facts."""
    with suppress_output():
        _import("MNN")


class Mnn(Format):
    """MNN file for batches of any size; inputs and outputs have their ONNX names."""

    suffix = "mnn"
    runtime = "MNN"

    def write(
        self, network: nn.Module, example: Pytree, notes: Mapping[str, str], *, opened: Opened = "batch"
    ) -> bytes:
        """See `Format`."""
        return mnn_of(Onnx().write(network.eval(), example, {}, opened=opened), type(network).__name__)

    def runner(self, content: bytes, network: nn.Module, threads: int) -> Runner:
        """See `Format`."""
        check_installed()
        try:
            file = MnnFile(content, threads)
        except ValueError as error:
            raise ExportError(
                f"{error}, of {type(network).__name__}: take another --format, or compute them by other operators in "
                "forward()"
            ) from error

        def run(inputs: Pytree) -> Any:
            args, kwargs = arguments(inputs)
            named = {name: tensor.numpy() for name, tensor in kwargs.items()} or [tensor.numpy() for tensor in args]
            found = [torch.from_numpy(array) for array in file(file.convert(named))]
            return found[0] if len(found) == 1 else found

        return run


def _for_mnn(content: bytes, name: str) -> bytes:
    """Return an ONNX file for MNN's converter, which requires the axes of some operators as attributes.

    Raises:
        ExportError: the network `name` has an operator that MNN computes wrongly.
    """
    onnx = _import("onnx")
    model = onnx.load_model_from_string(content)
    # MNN computes this operator wrongly for negative indices, which the exporter writes for x[:, -1] = 0.
    if any(node.op_type == "ScatterElements" for node in model.graph.node):
        raise ExportError(
            f"MNN computes assignments to parts of a tensor (x[:, 0] = ...) wrongly, as {name} uses them: take another "
            "--format, or compute them by other operators in forward()"
        )
    constants = {constant.name: constant for constant in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in _REDUCING and len(node.input) == 2 and node.input[1] in constants:
            axes = onnx.numpy_helper.to_array(constants[node.input.pop()])
            node.attribute.append(onnx.helper.make_attribute("axes", axes.tolist()))
    made: bytes = model.SerializeToString(deterministic=True)
    return made


def mnn_of(onnx: bytes, name: str) -> bytes:
    """Return MNN's file of an ONNX file; `name` is for errors. Equal input gives equal bytes.

    Raises:
        ExportError: MNN is not installed, or its converter fails.
    """
    check_installed()
    with tempfile.TemporaryDirectory(prefix="bcnet-") as folder:
        source, target = (Path(folder) / f"network.{suffix}" for suffix in ("onnx", "mnn"))
        source.write_bytes(_for_mnn(onnx, name))
        command = [sys.executable, "-c", _CONVERT, str(source), str(target)]  # the converter may end its process
        done = subprocess.run(command, capture_output=True, text=True)
        output = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        if foreign := _FOREIGN.search(done.stdout + done.stderr):
            raise ExportError(
                f"MNN has no form for {foreign[1]} as {name} uses it: take another --format, or compute it by other "
                "operators in forward()"
            )
        if done.returncode or not output[-1].startswith("made as ") or not target.exists():
            why = next((line for line in output if "rror" in line), output[-1])
            raise ExportError(
                f"MNN's converter ends with code {done.returncode} on {name} ({why}): take another --format, or "
                "compute it by other operators in forward()"
            )
        drawn = output[-1].rpartition(" ")[2].encode()
        content = target.read_bytes()
    same = str(uuid.UUID(bytes=hashlib.sha256(onnx).digest()[:16])).upper().encode()
    return content.replace(drawn, same) if len(drawn) == len(same) else content
