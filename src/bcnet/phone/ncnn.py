"""ncnn: networks as a zip of its two files, written by pnnx from the ONNX file and run on the CPU in float32."""

from __future__ import annotations

import io
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bcnet.errors import ExportError
from bcnet.formats import Format, Onnx, Opened, Runner, import_package, in_order
from bcnet.machine.measure import NcnnFile
from bcnet.nests import Nest, tensors

_import = partial(import_package, need="ncnn needs packages of its own", extra="ncnn")
_DATE = (1980, 1, 1, 0, 0, 0)  # the same network gives the same bytes


class Ncnn(Format):
    """ncnn's `network.ncnn.param` and `network.ncnn.bin` in one zip, for one input at once."""

    suffix = "ncnn.zip"
    runtime = "ncnn"
    opens_batch = False

    def write(self, network: nn.Module, example: Nest, notes: Mapping[str, str], *, opened: Opened = "batch") -> bytes:
        """See `Format`."""
        pnnx = _import("pnnx")
        ordered, inputs = in_order(network, example)
        _check_inputs(inputs)
        content = Onnx().write(ordered.eval(), inputs, {}, opened="nothing")
        with tempfile.TemporaryDirectory(prefix="bcnet-") as folder:
            place = Path(folder)
            (place / "network.onnx").write_bytes(content)
            shapes = ",".join(str(list(one.shape)).replace(" ", "") for one in inputs)
            command = [pnnx.EXEC_PATH, "network.onnx", f"inputshape={shapes}", "fp16=0"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            files = [place / f"network.ncnn.{suffix}" for suffix in ("param", "bin")]
            if done.returncode or not all(file.exists() for file in files):
                said = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
                raise ExportError(
                    f"pnnx ends with code {done.returncode} on {type(network).__name__} ({said}): take another --format"
                )
            _check_layers(files[0].read_text(encoding="utf-8"), network)
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w") as parts:
                for file in files:
                    parts.writestr(zipfile.ZipInfo(file.name, _DATE), file.read_bytes())
        return archive.getvalue()

    def runner(self, content: bytes, network: nn.Module, threads: int) -> Runner:
        """See `Format`."""
        _import("ncnn")
        file = NcnnFile(content, threads)

        def run(inputs: Nest) -> Any:
            given = tensors(inputs)
            _check_inputs(given)
            outputs = file(file.convert([tensor.numpy() for tensor in given]))
            found = [torch.from_numpy(array).unsqueeze(0) for array in outputs]
            return found[0] if len(found) == 1 else found

        return run


def _check_inputs(inputs: Sequence[torch.Tensor]) -> None:
    """Raise ExportError unless these are real numbers, one input at once."""
    if not all(tensor.is_floating_point() for tensor in inputs):  # pnnx runs the network on numbers of its own
        kinds = ", ".join(str(tensor.dtype) for tensor in inputs)
        raise ExportError(f"files of ncnn take inputs of real numbers; got {kinds}: take another --format")
    if any(len(tensor) != 1 for tensor in inputs):
        raise ExportError(f"ncnn takes one input at once; got {len(inputs[0])}: give a batch of 1")


def _check_layers(text: str, network: nn.Module) -> None:
    """Refuse layers that ncnn does not know: pnnx leaves what it cannot convert in the file."""
    known = _import("ncnn").layer_to_index
    kinds = {line.split()[0] for line in text.splitlines()[2:] if line.strip()}
    foreign = sorted(kind for kind in kinds if known(kind) == -1)
    if foreign:
        raise ExportError(
            f"ncnn has no form for {', '.join(foreign)} as {type(network).__name__} uses it: take another --format, or "
            "compute it by other operators in forward()"
        )
