"""TensorFlow Lite among the formats that a network is written in."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from bcnet.errors import ExportError
from bcnet.formats import Format, Runner
from bcnet.nests import Nest
from bcnet.tflite.converter import convert
from bcnet.tflite.litert import LiteRtFile


class LiteRt(Format):
    """TensorFlow Lite, by litert-torch, for LiteRT on phones."""

    suffix = "tflite"
    runtime = "LiteRT"
    opens_batch = False
    samples: Nest | None = None

    def write(self, network: nn.Module, example: Nest, notes: Mapping[str, str], *, open_batch: bool = True) -> bytes:
        """See `Format`."""
        return convert(network, example, self.samples)

    def runner(self, content: bytes, network: nn.Module, threads: int) -> Runner:
        """See `Format`."""
        return LiteRtFile(content, threads)


class LiteRtInt8(LiteRt):
    """TensorFlow Lite in int8, inputs and outputs too, for phones and microcontrollers: quantised after training.

    Args:
        samples: inputs, `(samples, batch, ...)`, whose ranges a file is quantised by; none is written without.
    """

    is_int8 = True

    def __init__(self, samples: Nest | None = None) -> None:
        self.samples = samples

    def write(self, network: nn.Module, example: Nest, notes: Mapping[str, str], *, open_batch: bool = True) -> bytes:
        """See `Format`."""
        if self.samples is None:
            raise ExportError("an int8 file is quantised by samples; got none: give LiteRtInt8(samples)")
        return super().write(network, example, notes, open_batch=open_batch)
