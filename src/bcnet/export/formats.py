"""The formats that a network is exported in, by name. To add one, write a `Format` and enter it here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bcnet.formats import Format, Onnx, Pt2, SafeTensors
from bcnet.tflite import LiteRt, LiteRtInt8

FORMATS: Mapping[str, Format] = {
    "onnx": Onnx(),
    "pt2": Pt2(),
    "safetensors": SafeTensors(),
    "litert": LiteRt(),
    "litert:int8": LiteRtInt8(),
}


def format_of(file: Path | None) -> str:
    """The name of the format that a file's suffix stands for; ONNX where it stands for none."""
    suffix = "" if file is None else file.suffix.removeprefix(".")
    return next((name for name, kind in FORMATS.items() if kind.suffix == suffix), "onnx")
