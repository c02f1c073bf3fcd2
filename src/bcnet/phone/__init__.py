"""Formats of phone engines besides LiteRT: ncnn, MNN and ExecuTorch."""

from bcnet.phone.executorch import ExecuTorch, ExecuTorchInt8
from bcnet.phone.mnn import Mnn
from bcnet.phone.ncnn import Ncnn

__all__ = ["ExecuTorch", "ExecuTorchInt8", "Mnn", "Ncnn"]
