"""TensorFlow Lite: network files for LiteRT on phones and tflite-micro on microcontrollers."""

from bcnet.tflite.converter import Converter, convert, is_installed
from bcnet.tflite.graph import disturb, read_graph
from bcnet.tflite.litert import LiteRt, LiteRtFile, LiteRtInt8

__all__ = ["Converter", "LiteRt", "LiteRtFile", "LiteRtInt8", "convert", "disturb", "is_installed", "read_graph"]
