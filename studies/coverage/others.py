"""Networks of other people's packages: do they trace, and is what is built from them exact?

    pip install monai segmentation-models-pytorch transformers pytorchcv ultralytics
    python -m studies.coverage.others [--quick]

For each network of a package that is installed, at random widths: the largest difference of a supernet's paths from
the networks built of them, in outputs and in the sum of squared gradients, relative to the largest value; parameters
and multiply-adds of the built network over those predicted, the latter by torch's own counter; the ONNX file's largest
difference. Rows go to `results/coverage_others.csv`; what is there is not computed again. Our package imports none of
these, whose licences are their own (Ultralytics' is the AGPL-3.0).
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import bcnet
from bcnet.errors import BCNetError
from bcnet.formats import Onnx
from bcnet.space import Side, WidthSpace
from studies.coverage.__main__ import searchable_share
from studies.shared.provenance import ROOT, append_row, finished, provenance
from studies.shared.torchvision_here import let_torchvision_import

CSV = ROOT / "results" / "coverage_others.csv"
_PACKAGES = {  # by which they are imported -> as they are installed
    "monai": "monai",
    "segmentation_models_pytorch": "segmentation-models-pytorch",
    "transformers": "transformers",
    "pytorchcv": "pytorchcv",
    "ultralytics": "ultralytics",
}


@dataclass(frozen=True)
class Network:
    """A network of a package, and the shape of an input without the batch."""

    package: str
    name: str
    make: Callable[[Any], nn.Module]
    shape: tuple[int, ...] = (3, 64, 64)


def _monai(name: str, *arguments: Any, **settings: Any) -> Callable[[Any], nn.Module]:
    return lambda package: getattr(importlib.import_module("monai.networks.nets"), name)(*arguments, **settings)


def _yolo(name: str, kind: str = "DetectionModel") -> Callable[[Any], nn.Module]:
    return lambda package: getattr(importlib.import_module("ultralytics.nn.tasks"), kind)(f"{name}.yaml", verbose=False)


def _hugging_face(name: str) -> Callable[[Any], nn.Module]:
    return lambda package: getattr(package, f"{name}ForImageClassification")(getattr(package, f"{name}Config")())


def _smp(name: str) -> Callable[[Any], nn.Module]:
    return lambda package: getattr(package, name)("resnet18", encoder_weights=None, classes=3)


def _pytorchcv(name: str) -> Callable[[Any], nn.Module]:
    return lambda package: importlib.import_module("pytorchcv.model_provider").get_model(name, pretrained=False)


_GREY = (1, 64, 64)
NETWORKS = (
    Network("monai", "UNet", _monai("UNet", 2, 1, 2, (16, 32, 64), (2, 2), num_res_units=2), _GREY),
    Network("monai", "UNet 3d", _monai("UNet", 3, 1, 2, (8, 16, 32), (2, 2)), (1, 16, 16, 16)),
    Network("monai", "DynUNet", _monai("DynUNet", 2, 1, 2, (3, 3, 3), (1, 2, 2), (2, 2)), _GREY),
    Network("monai", "SegResNet", _monai("SegResNet", spatial_dims=2, in_channels=1, init_filters=8), _GREY),
    Network("monai", "BasicUNet", _monai("BasicUNet", spatial_dims=2, in_channels=1), _GREY),
    *(
        Network("segmentation_models_pytorch", name, _smp(name), (3, 128, 128))
        for name in ("Unet", "FPN", "Linknet", "DeepLabV3Plus", "PSPNet", "PAN", "MAnet", "UnetPlusPlus")
    ),
    *(Network("transformers", n, _hugging_face(n)) for n in ("ResNet", "MobileNetV2", "RegNet", "ConvNext")),
    *(
        Network("pytorchcv", name, _pytorchcv(name), (3, 224, 224))
        for name in (
            *("shufflenet_g3_wd4", "condensenet74_c4_g4", "menet108_8x1_g3", "igcv3_wd4", "diracnet18v2"),
            *("bninception", "sqnxt23_w1", "peleenet", "ibn_resnet50", "airnet50_1x64d_r2"),
        )
    ),
    *(
        Network("ultralytics", name, _yolo(name))
        for name in ("yolov8n", "yolo11n", "yolov5n", "yolov3-tiny", "yolov10n")
    ),
    Network("ultralytics", "yolov8n-seg", _yolo("yolov8n-seg", "SegmentationModel")),
)


def examine(entry: Network) -> dict[str, object]:
    """One row."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = entry.make(importlib.import_module(entry.package)).double()
        x = torch.randn(2, *entry.shape, dtype=torch.float64)
        try:
            space = WidthSpace.trace(model, x)
        except BCNetError as error:
            return {"groups": 0, "searchable": 0.0, **dict.fromkeys(_COMPARED, ""), "held": str(error)}
        held = {fixed.reason for fixed in space.fixed if "input" not in fixed.reason and "output" not in fixed.reason}
        compared = _compared(model, space, x)
    return {
        "groups": len(space.groups),
        "searchable": round(searchable_share(space), 4),
        **compared,
        "held": "; ".join(sorted(held)),
    }


_COMPARED = ("outputs", "gradients", "parameters", "macs", "onnx")


def _compared(model: nn.Module, space: WidthSpace, x: Tensor) -> dict[str, object]:
    """The five figures of the built networks, on the side where each is worst."""
    supernet = bcnet.Supernet(model, space)
    widths = space.sample(torch.Generator().manual_seed(1))
    outputs = 0.0
    gradients = 0.0
    for side in Side:
        built = bcnet.supernet.build(model, space, widths, weights=(supernet, side)).train()
        supernet.train()
        mine, theirs = (_run(network, x) for network in (lambda v, side=side: supernet(v, widths, side), built))
        outputs = max(outputs, _apart(mine, theirs))
        for network in (supernet, built):
            network.zero_grad(set_to_none=True)
        for found in (mine, theirs):
            sum(tensor.square().mean() for tensor in found).backward()  # type: ignore[union-attr]
        whole, part = (
            torch.stack([p.grad.square().sum() for p in network.parameters() if p.grad is not None]).sum()
            for network in (supernet, built)
        )
        gradients = max(gradients, float((whole / part - 1).abs()))
    cost = space.cost(widths)
    network = bcnet.supernet.build(model, space, widths).float().eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(x.float()[:1])
    return {
        "outputs": f"{outputs:.1e}",
        "gradients": f"{gradients:.1e}",
        "parameters": round(sum(p.numel() for p in network.parameters()) / cost.params, 6),
        "macs": round(counter.get_total_flops() / 2 / cost.macs, 4),
        "onnx": _onnx(network, x.float()),
    }


def _run(network: Callable[[Tensor], Any], x: Tensor) -> list[Tensor]:
    torch.manual_seed(2)  # dropout
    return [leaf for leaf in tree_leaves(network(x)) if isinstance(leaf, Tensor) and leaf.requires_grad]


def _apart(mine: list[Tensor], theirs: list[Tensor]) -> float:
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-12)) for a, b in zip(mine, theirs, strict=True))


def _onnx(network: nn.Module, x: Tensor) -> str:
    try:
        found = tree_leaves(Onnx().runner(Onnx().write(network, x, {}), network, 1)(x))
    except Exception as error:
        return f"refused: {type(error).__name__}"
    with torch.no_grad():
        expected = [leaf for leaf in tree_leaves(network(x)) if isinstance(leaf, Tensor)]
    return f"{_apart(found, expected):.1e}" if len(found) == len(expected) else "other outputs"


def main(quick: Annotated[bool, typer.Option(help="A network of each package, nothing written.")] = False) -> None:
    """Examine what is missing."""
    let_torchvision_import()
    seen: set[str] = set()
    for entry in NETWORKS:
        if importlib.util.find_spec(entry.package) is None or (quick and entry.package in seen):
            continue
        seen.add(entry.package)
        key = {"package": _PACKAGES[entry.package], "network": entry.name}
        if quick:
            print({**key, **examine(entry)}, flush=True)
        elif not finished(CSV, key):
            size = "x".join(map(str, entry.shape))
            row = {**key, "version": metadata.version(key["package"]), "input": size, **examine(entry), **provenance()}
            append_row(CSV, row)
            print(row, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    typer.run(main)
