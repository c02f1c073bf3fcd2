"""TensorFlow Lite among the formats that a network is written in."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from bcnet.formats import Format, Runner
from bcnet.nests import Nest
from bcnet.tflite.converter import convert
from bcnet.tflite.litert import LiteRtFile


class LiteRt(Format):
    """TensorFlow Lite, by litert-torch, for LiteRT on phones."""

    suffix = "tflite"
    runtime = "LiteRT"
    opens_batch = False

    def write(
        self,
        network: nn.Module,
        example: Nest,
        notes: Mapping[str, str],
        *,
        open_batch: bool = True,
        samples: Nest | None = None,
    ) -> bytes:
        """See `Format`."""
        return convert(network, example, samples if self.is_int8 else None)

    def runner(self, content: bytes, network: nn.Module, threads: int) -> Runner:
        """See `Format`."""
        return LiteRtFile(content, threads)


class LiteRtInt8(LiteRt):
    """TensorFlow Lite in int8, inputs and outputs too, for phones and microcontrollers: quantised after training."""

    is_int8 = True
