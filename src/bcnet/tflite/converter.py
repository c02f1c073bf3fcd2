"""Conversion of networks to .tflite files, by litert-torch in a separate process.

The converter needs a gigabyte of packages, some in versions that conflict with others, and prints to the terminal. It
can therefore live in its own environment: the variable `BCNET_LITERT_PYTHON` names its Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch._decomp import get_decompositions
from torch.export import ExportedProgram

from bcnet.errors import ExportError
from bcnet.formats import export_graph, quiet_exporters, save_program
from bcnet.pytree import Pytree, arguments
from bcnet.tflite import worker

PYTHON = "BCNET_LITERT_PYTHON"
_ADVICE = (
    f"run `pip install 'bcnet[litert]'`, or install litert-torch in an environment of its own and give its Python in "
    f"{PYTHON}"
)


_NEAREST = (
    torch.ops.aten.upsample_nearest1d.vec,
    torch.ops.aten.upsample_nearest2d.vec,
    torch.ops.aten.upsample_nearest3d.vec,
)


class Converter:
    """A process that converts networks and runs the files; started by the first request.

    Example: `with Converter() as converter: content = converter.convert(network, images)`

    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._end: Callable[[], object] = lambda: None
        self._told: IO[bytes] | None = None  # its output

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process; the next request starts another."""
        self._end()
        self._process = None

    def convert(self, network: nn.Module, inputs: Pytree, samples: Pytree | None = None) -> bytes:
        """Return the file of a network in eval mode, for inputs of the shapes of `inputs`.

        Args:
            network: the network, on the CPU.
            inputs: an input of its `forward`; the batch size is fixed.
            samples: calibration inputs `(samples, batch, ...)` for an int8 file; without them the file is fp32.

        Raises:
            ExportError: the converter is not installed, or does not support an operator.
        """
        with tempfile.TemporaryDirectory(prefix="bcnet-") as folder:
            place = Path(folder)
            program = _with_exact_resizing(export_graph(network.eval(), inputs, opened="nothing"))
            save_program(program, place / "network.pt2", network)
            request: dict[str, Any] = {"program": str(place / "network.pt2"), "out": str(place / "network.tflite")}
            if samples is not None:
                np.savez(place / "samples.npz", **_signature(samples))
                request["samples"] = str(place / "samples.npz")
            self._request("convert", type(network).__name__, **request)
            return (place / "network.tflite").read_bytes()

    def versions(self) -> dict[str, str]:
        """Return the versions of the converting and running packages.

        Raises:
            ExportError: the converter is not installed.
        """
        return self._request("versions", "versions")

    def describe(self, content: bytes) -> dict[str, Any]:
        """Return the tensors and the arena of a file (see `bcnet.tflite.worker.describe`).

        Raises:
            ExportError: tflite-micro is not installed, or refuses the file.
        """
        with tempfile.TemporaryDirectory(prefix="bcnet-") as folder:
            file = Path(folder, "network.tflite")
            file.write_bytes(content)
            return self._request("describe", "the file", file=str(file))

    def run_micro(self, content: bytes, inputs: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the first output of an int8 file in tflite-micro for each row of `inputs`, both as stored in the file.

        Raises:
            ExportError: tflite-micro is not installed, or refuses the file.
        """
        with tempfile.TemporaryDirectory(prefix="bcnet-") as folder:
            place = Path(folder)
            (place / "network.tflite").write_bytes(content)
            np.savez(place / "inputs.npz", *inputs)
            names = {"file": "network.tflite", "inputs": "inputs.npz", "out": "outputs.npz"}
            self._request("run", "the file", **{key: str(place / name) for key, name in names.items()})
            with np.load(place / "outputs.npz") as outputs:
                return np.asarray(outputs["outputs"])

    def _request(self, do: str, what: str, **request: Any) -> dict[str, Any]:
        process = self._start()
        requests, replies = process.stdin, process.stdout
        assert requests is not None
        assert replies is not None
        try:
            requests.write(json.dumps({"do": do, **request}) + "\n")
            requests.flush()
            line = replies.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            output = self._last_words()
            self.close()
            raise ExportError(f"the converter ended while it worked on {what} ({output}): {_ADVICE}")
        reply = json.loads(line)
        if "error" in reply:
            if "ModuleNotFoundError" in reply["error"] or "ImportError" in reply["error"]:
                raise ExportError(f"TFLite files are made by litert-torch; it fails with {reply['error']}: {_ADVICE}")
            raise ExportError(
                f"TFLite has no form for {what}: {reply['error']}: take another --format, or compute it by other "
                "operators in forward()"
            )
        done: dict[str, Any] = reply["done"]
        return done

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None:
            python = os.environ.get(PYTHON, sys.executable)
            quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "ignore"}
            self._told = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
            try:
                self._process = subprocess.Popen(
                    [python, "-u", worker.__file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._told,
                    text=True,
                    encoding="utf-8",
                    env={**os.environ, **quiet},
                )
                self._end = weakref.finalize(self, _finish, self._process, self._told)
            except OSError as error:
                self._told.close()
                raise ExportError(f"{PYTHON} names a Python; {python!r} does not start ({error}): {_ADVICE}") from None
        return self._process

    def _last_words(self) -> str:
        assert self._told is not None
        self._told.seek(0)
        lines = [line for line in self._told.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else "no output"


def convert(network: nn.Module, inputs: Pytree, samples: Pytree | None = None) -> bytes:
    """Return the .tflite file of one network (see `Converter.convert`)."""
    with Converter() as converter:
        return converter.convert(network, inputs, samples)


def _finish(process: subprocess.Popen[str], output: IO[bytes]) -> None:
    process.communicate()  # closes its input, which ends it
    output.close()


@cache
def is_installed() -> bool:
    """Return whether networks can be converted here."""
    with Converter() as converter:
        try:
            converter.versions()
        except ExportError:
            return False
    return True


def _signature(inputs: Pytree) -> dict[str, Any]:
    """Return arrays by the converter's names for inputs, in its order."""
    args, kwargs = arguments(inputs)
    named = {f"args_{number}": tensor for number, tensor in enumerate(args)} | kwargs
    return {name: tensor.detach().cpu().numpy() for name, tensor in named.items()}


def _with_exact_resizing(program: ExportedProgram) -> ExportedProgram:
    """Return the graph with nearest resizing written as indexing, if TFLite's would take other pixels.

    TFLite takes the pixel at the centre, which is PyTorch's only if all sizes grow by whole factors. Its own operator
    is kept for those, since it is faster.
    """
    resizings = [node for node in program.graph.nodes if node.target in _NEAREST]
    sizes = [(node.args[0].meta["val"].shape[2:], node.meta["val"].shape[2:]) for node in resizings]
    if not any(new % old for before, after in sizes for old, new in zip(before, after, strict=True)):
        return program
    with quiet_exporters():
        indexed: ExportedProgram = program.run_decompositions(get_decompositions(_NEAREST))
    return indexed
