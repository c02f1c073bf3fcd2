#!/bin/sh
# Neither converter from ONNX to PyTorch gives a module that torch.export takes, of a file that torch's own exporter
# wrote of a network with global average pooling.
#
# torch 2.13.0, onnx 1.23.2, onnx2torch 1.5.15, onnx2pytorch 0.6.0.
#
# torch.onnx.export writes global average pooling as ReduceMean with its dimensions as an input (operator set 18 and
# later). onnx2torch has no converter for that version of the operator. onnx2pytorch converts it to the same outputs,
# but reads the dimensions from a tensor in every forward, so that the module cannot be exported again. From the older
# exporter (dynamo=False), which writes GlobalAveragePool, both give modules that export.
#
# Seen: "exports" for the older exporter, "not converted" and "not exported" for the present one.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 torchvision numpy onnx==1.23.2 \
    onnxscript onnx2torch==1.5.15 onnx2pytorch==0.6.0
cd "$work"
"$work/env/bin/python" - 2>/dev/null <<'PYTHON'
import io
import sys
import warnings

warnings.simplefilter("ignore")

import torch

try:
    import torchvision
except RuntimeError:  # a build for another torch: the converters import it, and this network uses none of it
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import onnx
from onnx2pytorch import ConvertModel
from onnx2torch import convert
from torch import nn

network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()
x = torch.randn(2, 3, 8, 8)
converters = {"onnx2torch": convert, "onnx2pytorch": lambda model: ConvertModel(model, experimental=True)}


def outcome(converter, model):
    try:
        converted = converter(model).eval()
    except NotImplementedError as error:
        return "not converted: ReduceMean, version 18" if "'ReduceMean', version=18" in str(error) else str(error)
    with torch.no_grad():
        if (converted(x) - network(x)).abs().max() > 1e-5:
            return "other outputs"
    try:
        torch.export.export(converted, (x,))
    except Exception as error:
        return f"not exported: {type(error).__name__}"
    return "exports"


found = {}
for dynamo in (True, False):
    file = io.BytesIO()
    batch = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)} if dynamo else {}
    torch.onnx.export(network, (x,), file, dynamo=dynamo, verbose=False, **batch)
    for name, converter in converters.items():
        found[name, dynamo] = outcome(converter, onnx.load_from_string(file.getvalue()))
        print(f"{name}, dynamo={dynamo}: {found[name, dynamo]}")
expected = {
    ("onnx2torch", True): "not converted: ReduceMean, version 18",
    ("onnx2pytorch", True): "not exported: GuardOnDataDependentSymNode",
    ("onnx2torch", False): "exports",
    ("onnx2pytorch", False): "exports",
}
sys.exit(found != expected)
PYTHON
