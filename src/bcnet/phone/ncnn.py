"""ncnn: networks as a zip of its two files, written by pnnx and run on the CPU in float32."""

from __future__ import annotations

import io
import subprocess
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from bcnet.errors import ExportError
from bcnet.formats import Format, Onnx, Opened, Runner, import_package, in_order
from bcnet.machine.measure import NcnnFile
from bcnet.pytree import Pytree, tensors

_import = partial(import_package, need="ncnn needs packages of its own", extra="ncnn")
_CLOSE = 1e-2  # of the largest output; exported files are compared more strictly
_DATE = (1980, 1, 1, 0, 0, 0)  # so that equal networks give equal bytes


class Ncnn(Format):
    """ncnn's `network.ncnn.param` and `network.ncnn.bin` in one zip, for one input at a time."""

    suffix = "ncnn.zip"
    runtime = "ncnn"
    opens_batch = False

    def write(
        self, network: nn.Module, example: Pytree, notes: Mapping[str, str], *, opened: Opened = "batch"
    ) -> bytes:
        """See `Format`.

        pnnx reads ONNX and TorchScript, and converts some layers of each wrongly that it converts correctly from the
        other. The first file with the network's outputs for `example` is used.
        """
        ordered, inputs = in_order(network, example)
        _check_inputs(inputs)
        first: ExportError | None = None
        for name, graph in _SOURCES.items():
            try:
                content = _convert(name, graph(ordered.eval(), inputs), network, inputs)
                self._check_outputs(content, ordered, inputs)
                return content
            except ExportError as error:
                first = first or error
        assert first is not None, "there are sources"
        raise first

    def _check_outputs(self, content: bytes, network: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        """Raise ExportError if a file's finite outputs for `inputs` differ from the network's."""
        with torch.no_grad():
            expected = [output.float() for output in tree_leaves(network(*inputs))]
        found = tree_leaves(self.runner(content, network, 1)(tuple(inputs)))
        shapes = [[tuple(output.shape) for output in outputs] for outputs in (expected, found)]
        if shapes[0] != shapes[1]:
            raise ExportError(
                f"ncnn must give outputs of PyTorch's shapes, {shapes[0]}; got {shapes[1]} for "
                f"{type(network).__name__}: take another --format, or compute them by other operators in forward()"
            )
        for one, other in zip(expected, found, strict=True):
            finite = one.isfinite()
            if not finite.any():
                continue
            difference = float((other - one)[finite].abs().max())
            largest = max(1.0, float(one[finite].abs().max()))
            if not difference <= _CLOSE * largest:  # also false if the file returns NaN
                raise ExportError(
                    f"ncnn must give PyTorch's outputs; those of {type(network).__name__} are off by {difference:.3g}: "
                    "take another --format, or compute them by other operators in forward()"
                )

    def runner(self, content: bytes, network: nn.Module, threads: int) -> Runner:
        """See `Format`."""
        _import("ncnn")
        try:
            file = NcnnFile(content, threads)
        except ValueError as error:
            raise ExportError(f"{error}, used by {type(network).__name__}: take another --format") from error

        def run(inputs: Pytree) -> Any:
            given = tensors(inputs)
            _check_inputs(given)
            outputs = file(file.convert([tensor.numpy() for tensor in given]))
            found = [torch.from_numpy(array).unsqueeze(0) for array in outputs]
            return found[0] if len(found) == 1 else found

        return run


def _onnx(network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> bytes:
    return Onnx().write(network, inputs, {}, opened="nothing")


def _torchscript(network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> bytes:
    content = io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # deprecation, and values that become constants
            traced = torch.jit.trace(network, inputs, check_trace=False, strict=False)  # type: ignore[no-untyped-call]
            torch.jit.save(traced, content)
    except Exception as error:  # errors of many types
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise ExportError(f"TorchScript refuses {type(network).__name__}: {reason}: take another --format") from error
    return content.getvalue()


_SOURCES: Mapping[str, Callable[[nn.Module, tuple[torch.Tensor, ...]], bytes]] = MappingProxyType(
    {"network.onnx": _onnx, "network.pt": _torchscript}
)
"""File name -> function that writes a graph which pnnx reads under it."""


def _convert(name: str, graph: bytes, network: nn.Module, inputs: Sequence[torch.Tensor]) -> bytes:
    """Return the zip of the ncnn files that pnnx makes from a graph."""
    pnnx = _import("pnnx")
    with tempfile.TemporaryDirectory(prefix="bcnet-") as folder:
        place = Path(folder)
        (place / name).write_bytes(graph)
        shapes = ",".join(str(list(one.shape)).replace(" ", "") for one in inputs)
        command = [pnnx.EXEC_PATH, name, f"inputshape={shapes}", "fp16=0"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        files = [place / f"network.ncnn.{suffix}" for suffix in ("param", "bin")]
        if done.returncode or not all(file.exists() for file in files):
            reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise ExportError(
                f"pnnx ends with code {done.returncode} on {type(network).__name__} ({reason}): take another --format"
            )
        _check_layers(files[0].read_text(encoding="utf-8"), network)
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as parts:
            for file in files:
                parts.writestr(zipfile.ZipInfo(file.name, _DATE), file.read_bytes())
    return archive.getvalue()


def _check_inputs(inputs: Sequence[torch.Tensor]) -> None:
    """Raise ExportError unless there is one real-valued input at a time."""
    if not all(tensor.is_floating_point() for tensor in inputs):  # pnnx runs the network on its own real inputs
        kinds = ", ".join(str(tensor.dtype) for tensor in inputs)
        raise ExportError(f"files of ncnn take inputs of real numbers; got {kinds}: take another --format")
    if any(len(tensor) != 1 for tensor in inputs):
        raise ExportError(f"ncnn takes one input at once; got {len(inputs[0])}: give a batch of 1")


def _check_layers(text: str, network: nn.Module) -> None:
    """Raise ExportError for layers that ncnn lacks, since pnnx leaves them in the file."""
    known = _import("ncnn").layer_to_index
    kinds = {line.split()[0] for line in text.splitlines()[2:] if line.strip()}
    foreign = sorted(kind for kind in kinds if known(kind) == -1)
    if foreign:
        raise ExportError(
            f"ncnn has no form for {', '.join(foreign)} as {type(network).__name__} uses it: take another --format, or "
            "compute it by other operators in forward()"
        )
