"""Table 7: a searched ResNet50 as the backbone of RetinaNet and Faster R-CNN with a feature pyramid, in COCO AP.

    python -m studies.detection --data COCO --detector retinanet --widths runs/r50/result.json \\
        --weights runs/r50/final.safetensors
    python -m studies.detection --data COCO --detector faster_rcnn --widths uniform:0.5 --weights uniform.safetensors
    python -m studies.detection --quick     # both detectors on a dozen drawn images; writes nothing

`--data` is a folder with `annotations/instances_train2017.json`, `train2017/`, and the same of `val2017`. Without
`--weights` all of the backbone learns, from scratch; with them the stem, layer1 and the batch norms stay as they are.

The paper does not say how it trained; this is what is called the 1x schedule: 12 epochs of SGD, batch 16, momentum 0.9,
weight decay 1e-4, a tenth of the rate after 8 and again after 11 epochs, a linear warm-up of 500 steps, sides of 800 to
1333 pixels, horizontal flips. The rate is 0.02 (RetinaNet: 0.01) at batch 16, in proportion at others. A checkpoint is
written after every epoch; the same command goes on from it. A finished row of the CSV is not computed again.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader

import bcnet
from bcnet.errors import BCNetError, DataError, ModelError, TrainingError, WidthError
from bcnet.files import read_latest, write_tensors
from bcnet.models import create, detection
from bcnet.space import Widths, WidthSpace
from bcnet.tasks import Found
from studies.detection.coco import Images, Split, evaluate, has_pycocotools
from studies.shared.provenance import ROOT, append_row, finished, provenance
from studies.shared.torchvision_here import let_torchvision_import

RATES = {"retinanet": 0.01, "faster_rcnn": 0.02}  # at batch 16
DROPS = (8 / 12, 11 / 12)
# The stand-ins hold every proposal's samples in memory at once.
QUICK = {
    "retinanet": {"topk_candidates": 50},
    "faster_rcnn": {f"rpn_{when}_nms_top_n_{mode}": 50 for when in ("pre", "post") for mode in ("train", "test")},
}


@dataclass(frozen=True)
class Settings:
    """What one row of the study depends on; `widths` is `original`, `uniform:RATIO` or a JSON file."""

    data: Path
    detector: str = "retinanet"
    model: str = "torchvision:resnet50"
    widths: str = "original"
    weights: Path | None = None
    epochs: int = 12
    batch: int = 16
    rate: float | None = None
    warm_up: int = 500
    min_size: int = 800
    max_size: int = 1333
    seed: int = 0
    workers: int = 4
    device: str = "cpu"
    train: str = "train2017"
    val: str = "val2017"
    extra: Mapping[str, int] = field(default_factory=dict)  # further arguments of the detector

    def __post_init__(self) -> None:
        if self.detector not in RATES:
            raise ModelError(f"a detector is one of {', '.join(RATES)}; got {self.detector!r}")

    def key(self) -> dict[str, str]:
        """The columns that tell rows apart."""
        names = ("detector", "model", "widths", "weights", "data", "epochs", "batch", "rate", "min_size", "seed")
        return {name: str(getattr(self, name)) for name in names}

    @property
    def base_rate(self) -> float:
        return RATES[self.detector] * self.batch / 16 if self.rate is None else self.rate


def chosen_widths(space: WidthSpace, text: str) -> Widths:
    """Widths by group: `original`, `uniform:0.5`, or a JSON of group name -> width (a run's result.json will do)."""
    if text == "original":
        return space.full
    if text.startswith("uniform:"):
        return space.uniform(macs=float(text.removeprefix("uniform:")))
    if not Path(text).is_file():
        raise WidthError(f"widths are original, uniform:RATIO or a JSON file; got {text!r}")
    content = json.loads(Path(text).read_text())
    named = content.get("widths", content)
    names = [group.name for group in space.groups]
    if not isinstance(named, dict) or set(named) != set(names):
        raise WidthError(f"{text} must give a width to each of the groups {names}; got {named!r}")
    widths = tuple(named[name] for name in names)
    space.check(widths)
    return widths


def backbone(settings: Settings) -> tuple[nn.Module, bcnet.Cost]:
    """The narrow network, with its trained weights where given, and its cost at 224 pixels."""
    source = create(settings.model)
    model = source.build()
    space = WidthSpace.trace(model, torch.zeros(2, *source.input_size), multiple_of=1)
    widths = chosen_widths(space, settings.widths)
    network = bcnet.supernet.build(model, space, widths, factory=source.factory)
    if settings.weights is not None:
        try:
            network.load_state_dict(load_file(settings.weights))
        except (OSError, RuntimeError) as error:
            raise ModelError(
                f"--weights are those of {settings.model} at --widths {settings.widths}; {settings.weights} does not "
                f"fit: {error}"
            ) from None
    return network, space.cost(widths)


def detector_on(network: nn.Module, settings: Settings, num_classes: int) -> nn.Module:
    """The detector around a backbone: partly frozen where that has trained weights, as torchvision's are."""
    make = detection.retinanet if settings.detector == "retinanet" else detection.faster_rcnn
    trained = settings.weights is not None
    return make(
        network,
        num_classes,
        trainable_layers=3 if trained else 5,
        frozen_norm=trained,
        generator=torch.Generator().manual_seed(settings.seed),
        min_size=settings.min_size,
        max_size=settings.max_size,
        **settings.extra,
    )


def fit(detector: nn.Module, split: Split, settings: Settings, checkpoint: Path) -> None:
    """Train to the end, from the last finished epoch on. Every epoch is a function of its number and the seed."""
    parameters = [parameter for parameter in detector.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=settings.base_rate, momentum=0.9, weight_decay=1e-4)
    identity = settings.key()
    for epoch in range(resume(detector, optimizer, checkpoint, identity), settings.epochs):
        seed = settings.seed * 100_000 + epoch
        torch.manual_seed(seed)  # torchvision draws its samples of anchors from the global generator
        loader = DataLoader(
            Images(split, training=True, seed=seed),
            settings.batch,
            shuffle=True,
            num_workers=settings.workers,
            collate_fn=list,
            generator=torch.Generator().manual_seed(seed),
        )
        loss = train_epoch(detector, optimizer, loader, settings, epoch)
        print(f"epoch {epoch + 1}/{settings.epochs}: loss {loss:.4f}", file=sys.stderr, flush=True)
        tensors = {f"model.{key}": value for key, value in detector.state_dict().items()}
        for index, parameter in enumerate(parameters):
            tensors[f"momentum.{index}"] = optimizer.state[parameter]["momentum_buffer"]
        write_tensors(checkpoint, tensors, identity, {"epochs": epoch + 1}, keep_previous=True)


def resume(detector: nn.Module, optimizer: torch.optim.Optimizer, checkpoint: Path, identity: dict[str, str]) -> int:
    """Load the last checkpoint, if there is one; how many epochs are done."""
    found = read_latest(checkpoint, identity)
    if found is None:
        return 0
    tensors, state = found
    prefix = "model."
    detector.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    for index, parameter in enumerate(optimizer.param_groups[0]["params"]):
        optimizer.state[parameter]["momentum_buffer"] = tensors[f"momentum.{index}"].to(parameter.device)
    return int(state["epochs"])


def train_epoch(
    detector: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any], settings: Settings, epoch: int
) -> float:
    """One pass over the training images; the mean loss."""
    detector.train()
    total = 0.0
    for step, batch in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(settings, epoch, epoch * len(loader) + step)
        images = [image.to(settings.device) for image, _ in batch]
        targets = [{key: value.to(settings.device) for key, value in target.items()} for _, target in batch]
        loss = sum(detector(images, targets).values())
        if not torch.isfinite(loss):
            raise TrainingError(f"the loss must be a number; got {float(loss)} at step {step}: lower --rate")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += float(loss.detach())
    return total / len(loader)


def rate_at(settings: Settings, epoch: int, step: int) -> float:
    """Linear warm-up from a thousandth, then steps down by ten."""
    drops = sum(epoch >= round(drop * settings.epochs) for drop in DROPS)
    warm = min(1.0, 0.001 + 0.999 * step / settings.warm_up) if settings.warm_up else 1.0
    return settings.base_rate * warm * 0.1**drops


@torch.no_grad()
def detect(detector: nn.Module, split: Split, settings: Settings) -> list[Found]:
    """The detections in every image of the split, in order."""
    detector.eval()
    loader = DataLoader(
        Images(split, training=False), settings.batch, num_workers=settings.workers, collate_fn=list, shuffle=False
    )
    results = (one for batch in loader for one in detector([image.to(settings.device) for image, _ in batch]))
    return [Found(*(one[key].cpu().double().numpy() for key in ("boxes", "labels", "scores"))) for one in results]


def row(settings: Settings, checkpoint: Path) -> dict[str, object]:
    """Train and judge one detector."""
    start = time.monotonic()
    train, val = (Split.read(settings.data, name) for name in (settings.train, settings.val))
    if train.categories != val.categories:
        raise DataError(f"both splits have the same categories; got {train.categories} and {val.categories}")
    network, cost = backbone(settings)
    detector = detector_on(network, settings, len(train.categories) + 1).to(settings.device)
    fit(detector, train, settings, checkpoint)
    result = evaluate(val, detect(detector, val, settings))
    return {
        **settings.key(),
        "backbone_macs": cost.macs,
        "backbone_params": cost.params,
        "ap": f"{result.ap:.2f}",
        "ap50": f"{result.ap50:.2f}",
        "evaluator": "pycocotools" if has_pycocotools() else "bcnet.tasks.coco_ap",
        "images": f"{len(train.images)} {len(val.images)}",
        "seconds": f"{time.monotonic() - start:.0f}",
        "device": torch.cuda.get_device_name(settings.device) if "cuda" in settings.device else "cpu",
        **provenance(),
    }


def quick() -> None:
    """Both detectors on drawn images, trained, evaluated and resumed; the stand-ins serve where operators lack."""
    from studies.detection.coco import tiny_folder

    let_torchvision_import()
    with tempfile.TemporaryDirectory() as folder:
        tiny = Settings(
            tiny_folder(Path(folder) / "coco"), model="torchvision:resnet18", widths="uniform:0.25", epochs=1, batch=4,
            warm_up=0, min_size=64, max_size=128, workers=0,
        )  # fmt: skip
        for name in RATES:
            settings = dataclasses.replace(tiny, detector=name, extra=QUICK[name])
            first, again = (row(settings, Path(folder) / f"{name}.safetensors") for _ in range(2))
            assert first["ap"] == again["ap"], "the checkpoint gives what training gave"
            print(*first.values(), sep="  ")


def main(
    data: Annotated[Path | None, typer.Option(help="The COCO-format folder.")] = None,
    detector: Annotated[str, typer.Option(help="retinanet or faster_rcnn.")] = "retinanet",
    model: Annotated[str, typer.Option(help="The network the widths are for.")] = "torchvision:resnet50",
    widths: Annotated[str, typer.Option(help="original, uniform:0.5, or a JSON file of widths.")] = "original",
    weights: Annotated[Path | None, typer.Option(help="The trained backbone, a safetensors file.")] = None,
    epochs: int = 12,
    batch: int = 16,
    rate: Annotated[float | None, typer.Option(help="By default in proportion to the batch.")] = None,
    seed: int = 0,
    workers: int = 4,
    device: Annotated[str, typer.Option()] = "cuda" if torch.cuda.is_available() else "cpu",
    out: Annotated[Path, typer.Option(help="CSV of finished rows.")] = ROOT / "results" / "detection.csv",
    checkpoints: Annotated[Path, typer.Option(help="Folder of checkpoints.")] = ROOT / "runs" / "detection",
    is_quick: Annotated[bool, typer.Option("--quick", help="See that everything runs; writes nothing.")] = False,
) -> None:
    """COCO AP of a detector on a backbone of given widths."""
    if is_quick:
        quick()
        return
    if data is None:
        raise SystemExit("--data must name a folder in COCO's format, or give --quick")
    if not has_pycocotools():
        print("pycocotools is not installed; AP is our own: `pip install pycocotools` to compare with others.")
    try:
        settings = Settings(
            data, detector, model, widths, weights, epochs, batch, rate, seed=seed, workers=workers, device=device
        )
        if not finished(out, settings.key()):
            checkpoints.mkdir(parents=True, exist_ok=True)
            name = f"{detector}-{Path(widths).parent.name}-{Path(widths).stem}-{seed}".replace(":", "_")
            append_row(out, row(settings, checkpoints / f"{name}.safetensors"))
    except BCNetError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    typer.run(main)
