"""Ultralytics' YOLO narrowed by its own loss on its own data sets, in a loop of one's own.

    pip install ultralytics            # under the AGPL-3.0, or a licence that you buy
    python examples/yolo_loop.py coco8.yaml runs/yolo
    python examples/yolo_loop.py coco8.yaml runs/try --quick

`data.yaml` is what `yolo train data=` takes. Widths are scored by the loss on the validation pictures. `network.pt` has
the narrow network as a module, whose `model.loss(batch)` any training of Ultralytics' calls.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from ultralytics.cfg import get_cfg
from ultralytics.data import build_dataloader, build_yolo_dataset
from ultralytics.data.utils import check_det_dataset
from ultralytics.nn.tasks import DetectionModel

import bcnet

BATCH = 16


def loader(data: dict, part: str, size: int):
    """Ultralytics' own pictures: augmented for training, as they are for validation."""
    settings = get_cfg(overrides={"imgsz": size, "rect": False, "task": "detect"})
    mode = "train" if part == "train" else "val"
    pictures = build_yolo_dataset(settings, data[part], BATCH, data, mode=mode, rect=False, stride=32)
    return build_dataloader(pictures, min(BATCH, len(pictures)), workers=0, shuffle=mode == "train", rank=-1)


def batches(pictures) -> Iterator[dict]:
    """The batches of one pass, as `DetectionModel.loss` takes them."""
    for _, batch in zip(range(len(pictures)), pictures, strict=False):
        yield batch | {"img": batch["img"].float() / 255}


def trained(network: nn.Module, gradients, pictures, epochs: int) -> None:
    """Ultralytics' usual optimiser; `gradients(batch)` leaves those of a step in the parameters."""
    learning = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(learning, 0.01, momentum=0.937, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(pictures))
    network.train()
    for _ in range(epochs):
        for batch in batches(pictures):
            optimizer.zero_grad()
            gradients(batch)
            nn.utils.clip_grad_norm_(learning, 10.0)
            optimizer.step()
            schedule.step()


def loss_of(network: nn.Module, batch: dict) -> torch.Tensor:
    return network.loss(batch)[0].sum()


def main() -> None:
    options = arguments()
    torch.manual_seed(0)
    data = check_det_dataset(options.data)
    size, epochs = (64, 1) if options.quick else (640, 100)
    training, held_out = (loader(data, part, size) for part in ("train", "val"))
    model = DetectionModel(options.model, nc=data["nc"], verbose=False)
    model.args = get_cfg()

    space = bcnet.WidthSpace.trace(model, torch.zeros(2, 3, size, size), min_ratio=0.1)
    supernet = bcnet.Supernet(model, space)
    steps = bcnet.SupernetSteps(supernet)
    trained(supernet, lambda batch: steps.backward(lambda network: loss_of(network, batch)), training, epochs)
    budget, records = bcnet.Budget(macs=options.budget), steps.records
    prior = bcnet.prior.learn_prior(space, records.steps, records.widths, records.losses, budget)
    validation = list(batches(held_out))

    @torch.no_grad()
    def score(widths: tuple[int, ...]) -> float:
        losses = []
        for side in bcnet.supernet.Side:
            with supernet.at(widths, side) as network:
                losses += [float(loss_of(network, batch)) / len(batch["img"]) for batch in validation]
        return -sum(losses) / len(losses)

    count = (4, 1) if options.quick else (20, 10)
    found = bcnet.searchers.search_widths(space, score, budget, searcher=bcnet.Evolution(*count, prior=prior))
    network = bcnet.supernet.build(model, space, found.best.widths)
    trained(network, lambda batch: loss_of(network, batch).backward(), training, epochs)
    options.run.mkdir(parents=True, exist_ok=True)
    torch.save(network, options.run / "network.pt")
    ratio = space.cost(found.best.widths).macs / space.reference.macs
    with torch.no_grad():
        last = sum(float(loss_of(network, batch)) / len(batch["img"]) for batch in validation) / len(validation)
    print(f"{len(space.groups)} width groups, {ratio:.2f}x multiply-adds, validation loss {last:.3f} a picture")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Narrow a YOLO in a loop of one's own.")
    parser.add_argument("data", help="a data set's YAML, as Ultralytics takes it")
    parser.add_argument("run", type=Path, help="the folder to write")
    parser.add_argument("--model", default="yolov8n.yaml", help="a network's YAML")
    parser.add_argument("--budget", type=float, default=0.5, help="share of the multiply-adds")
    parser.add_argument("--quick", action="store_true", help="one epoch of small pictures")
    return parser.parse_args()


if __name__ == "__main__":
    main()
