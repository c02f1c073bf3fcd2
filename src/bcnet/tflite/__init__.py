"""TensorFlow Lite: networks as its files, run by LiteRT on phones and by tflite-micro on microcontrollers."""

from bcnet.tflite.converter import Converter, convert
from bcnet.tflite.graph import read_graph

__all__ = ["Converter", "convert", "read_graph"]
