"""torchvision where its compiled operators are missing: `nms` and `roi_align` in plain torch, for tests only.

A build of torchvision that does not match torch's fails at import with "operator torchvision::nms does not exist".
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

import torch

_LIBRARY: torch.library.Library | None = None  # must stay alive as long as its operators are used


def install() -> None:
    """Import torchvision, with the stand-ins where it needs them; nothing happens where it is not installed."""
    global _LIBRARY
    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        _LIBRARY = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            _LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _LIBRARY.impl("nms", nms, "CompositeExplicitAutograd")
        importlib.import_module("torchvision")
        _let_python_operators_run()


def nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Indices of the boxes kept, best score first: each drops those after it that overlap it by more."""
    from torchvision.ops import box_iou

    order = scores.argsort(descending=True, stable=True)
    overlaps = box_iou(boxes[order], boxes[order]) > iou_threshold  # (boxes, boxes)
    dropped = torch.zeros(len(order), dtype=torch.bool, device=boxes.device)
    kept = []
    for place in range(len(order)):
        if not dropped[place]:
            kept.append(place)
            dropped |= overlaps[place]
    return order[kept]


def _let_python_operators_run() -> None:
    boxes = importlib.import_module("torchvision.ops.boxes")
    boxes._assert_has_ops = lambda: None  # type: ignore[attr-defined]
    align = importlib.import_module("torchvision.ops.roi_align")
    # torchvision compiles its Python roi_align at the first call, which takes longer than all our calls together.
    align._roi_align = align._roi_align.__wrapped__  # type: ignore[attr-defined]
