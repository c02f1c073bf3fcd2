"""Export formats by name. To add one, subclass `Format` and register it here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bcnet.formats import Format, Onnx, Pt2, SafeTensors
from bcnet.phone import ExecuTorch, ExecuTorchInt8, Mnn, Ncnn
from bcnet.tflite import LiteRt, LiteRtInt8

FORMATS: Mapping[str, Format] = {
    "onnx": Onnx(),
    "pt2": Pt2(),
    "safetensors": SafeTensors(),
    "litert": LiteRt(),
    "litert:int8": LiteRtInt8(),
    "ncnn": Ncnn(),
    "mnn": Mnn(),
    "executorch": ExecuTorch(),
    "executorch:int8": ExecuTorchInt8(),
}


def format_of(file: Path | None) -> str:
    """Return the format of a file's suffix; ONNX for other suffixes."""
    name = "" if file is None else file.name
    return next((known for known, kind in FORMATS.items() if name.endswith(f".{kind.suffix}")), "onnx")
