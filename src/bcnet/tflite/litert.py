"""LiteRT: formats of .tflite files, and running files on this machine; int8 files take and return real numbers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bcnet.errors import ExportError
from bcnet.formats import Format, Int8, Opened, Runner
from bcnet.machine.measure import to_stored
from bcnet.pytree import Pytree, arguments
from bcnet.tflite.converter import convert

Array = npt.NDArray[Any]


class LiteRt(Format):
    """TensorFlow Lite by litert-torch, for LiteRT on phones."""

    suffix = "tflite"
    runtime = "LiteRT"
    opens_batch = False
    takes_bytes = True

    def write(
        self, network: nn.Module, example: Pytree, notes: Mapping[str, str], *, opened: Opened = "batch"
    ) -> bytes:
        """See `Format`."""
        return convert(network, example)

    def runner(self, content: bytes, network: nn.Module, threads: int) -> Runner:
        """See `Format`."""
        return LiteRtFile(content, threads)


class LiteRtInt8(Int8, LiteRt):
    """TensorFlow Lite in int8, including inputs and outputs, for phones and microcontrollers."""

    def write(
        self, network: nn.Module, example: Pytree, notes: Mapping[str, str], *, opened: Opened = "batch"
    ) -> bytes:
        """See `Format`."""
        return convert(network, example, self.samples)


class LiteRtFile:
    """A .tflite file, loaded for `threads` threads.

    Raises:
        ExportError: LiteRT is not installed, or refuses the file.
    """

    def __init__(self, content: bytes, threads: int = 1) -> None:
        package = check_installed()
        try:
            self.interpreter = package.Interpreter(model_content=content, num_threads=threads)
            self.interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise ExportError(f"LiteRT refuses the file with {type(error).__name__}: {error}") from error
        self._into = self.interpreter.get_input_details()
        named = self.interpreter.get_signature_runner().get_input_details()
        self._names = {detail["index"]: name for name, detail in named.items()}
        self._out = self.interpreter.get_output_details()

    def to_stored(self, inputs: Pytree) -> list[Array]:
        """Return inputs as stored in the file and in its order, int8 ones by their scale."""
        args, kwargs = arguments(inputs)
        tensors = kwargs or {f"args_{number}": tensor for number, tensor in enumerate(args)}
        return [to_stored(tensors[self._names[d["index"]]].numpy(), d) for d in self._into]

    def to_real(self, outputs: Array) -> Array:
        """Return the real numbers of the first output."""
        return _to_real(outputs, self._out[0])

    def __call__(self, inputs: Pytree) -> Any:
        """Run it on a batch of the size that it was converted for."""
        for detail, array in zip(self._into, self.to_stored(inputs), strict=True):
            self.interpreter.set_tensor(detail["index"], array)
        self.interpreter.invoke()
        found = [torch.from_numpy(_to_real(self.interpreter.get_tensor(d["index"]), d)) for d in self._out]
        return found[0] if len(found) == 1 else found


def check_installed() -> Any:
    """Return the package that runs files.

    Raises:
        ExportError: it is not installed.
    """
    try:
        return importlib.import_module("ai_edge_litert.interpreter")
    except ImportError as error:
        raise ExportError(
            f"LiteRT is a package of its own; importing it failed with {error}: run `pip install ai-edge-litert`"
        ) from error


class FileNetwork(nn.Module):
    """A file as a network, run row by row, so that a task can test it.

    Args:
        file: runs a batch of one.
    """

    def __init__(self, file: Callable[[Pytree], Any]) -> None:
        super().__init__()
        self.file = file
        self.place = nn.Parameter(torch.zeros(0), requires_grad=False)  # tells callers that it is on the CPU

    def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
        """Return the outputs of all rows."""
        rows = len(next(iter((*args, *kwargs.values()))))
        found = [self.file(_row(args, kwargs, number)) for number in range(rows)]
        if isinstance(found[0], torch.Tensor):
            return torch.cat(found)
        return [torch.cat(parts) for parts in zip(*found, strict=True)]


def _row(args: Sequence[torch.Tensor], kwargs: Mapping[str, torch.Tensor], number: int) -> Pytree:
    if kwargs:
        return {name: tensor[number : number + 1].cpu() for name, tensor in kwargs.items()}
    return tuple(tensor[number : number + 1].cpu() for tensor in args)


def _to_real(array: Array, detail: Mapping[str, Any]) -> Array:
    scale, zero = detail["quantization"]
    return np.asarray((array.astype(np.float32) - np.float32(zero)) * np.float32(scale) if scale else array.copy())
