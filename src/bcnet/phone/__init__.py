"""Formats of engines for phones, beside LiteRT's: ncnn and ExecuTorch. Their files take inputs in order."""

from bcnet.phone.executorch import ExecuTorch, ExecuTorchInt8
from bcnet.phone.ncnn import Ncnn

__all__ = ["ExecuTorch", "ExecuTorchInt8", "Ncnn"]
