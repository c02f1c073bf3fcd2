"""What every test needs: few threads, and torchvision where its compiled operators are missing."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import importlib.util
import sys

import torch

torch.set_num_threads(min(2, os.cpu_count() or 1))

_LIBRARY = None  # must stay alive as long as its operators are used
if importlib.util.find_spec("torchvision") is not None:
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        _LIBRARY = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            _LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision  # noqa: F401
