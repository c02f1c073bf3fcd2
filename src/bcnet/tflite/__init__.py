"""TensorFlow Lite: networks as its files, run by LiteRT on phones and by tflite-micro on microcontrollers."""

from bcnet.tflite.arena import fit_arena
from bcnet.tflite.converter import Converter, convert

__all__ = ["Converter", "convert", "fit_arena"]
