"""Pictures with boxes on disk, in COCO's JSON, read and augmented by torchvision: a CenterNet of one's own, narrowed.

    cd examples
    export COCO=~/data/coco
    bcnet search --model boxes_on_disk:CenterNet --data boxes_on_disk:loaders \
        --task detection:classes=91,height=128,width=128 --budget 0.5 --out runs/coco

`COCO` is a folder with `annotations/instances_train2017.json`, `train2017/`, and the same of `val2017`. Needs
torchvision and pycocotools, `pip install 'bcnet[detection]'`.
"""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision import tv_tensors
from torchvision.datasets import CocoDetection, wrap_dataset_for_transforms_v2
from torchvision.transforms import v2

from bcnet.tasks import padded_boxes

SIZE = 128  # of the pictures, in pixels
BATCH = 16
MOST = 100  # boxes of a picture


class CenterNet(nn.Module):
    """Down to an eighth and up to a quarter again: a map of classes, sizes and offsets."""

    def __init__(self, num_classes: int = 95, channels: int = 32) -> None:  # 91 classes and 4 of the boxes
        super().__init__()
        self.first = nn.Sequential(self.layer(3, channels, 2), self.layer(channels, 2 * channels, 2))
        self.deep = nn.Sequential(self.layer(2 * channels, 4 * channels, 2), self.layer(4 * channels, 4 * channels))
        self.up = nn.ConvTranspose2d(4 * channels, 2 * channels, 2, 2)
        self.beside = self.layer(4 * channels, 2 * channels)
        self.last = nn.Conv2d(2 * channels, num_classes, 1)
        nn.init.constant_(self.last.bias[:-4], -2.2)  # a box at a tenth of all points, to begin with

    @staticmethod
    def layer(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        return self.last(self.beside(torch.cat([first, self.up(self.deep(first))], 1)))


def prepared(*augmentation: v2.Transform) -> v2.Compose:
    """Transforms of a picture and its boxes together; boxes that are cut away are left out."""
    normalised = v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    whole = [v2.Resize((SIZE, SIZE), antialias=True), v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes()]
    return v2.Compose([v2.ToImage(), *augmentation, *whole, v2.ToDtype(torch.float32, scale=True), normalised])


class Pictures(torch.utils.data.Dataset):
    """Pictures and their boxes, as `padded_boxes` takes them."""

    def __init__(self, folder: str, part: str, *augmentation: v2.Transform) -> None:
        read = CocoDetection(f"{folder}/{part}2017", f"{folder}/annotations/instances_{part}2017.json")
        self.source = wrap_dataset_for_transforms_v2(read, target_keys=("boxes", "labels"))
        self.transforms = prepared(*augmentation)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, number: int):
        picture, target = self.source[number]
        if "boxes" not in target:  # a picture without any
            none = tv_tensors.BoundingBoxes(torch.zeros(0, 4), format="XYXY", canvas_size=picture.size[::-1])
            target = {"boxes": none, "labels": torch.zeros(0, dtype=torch.int64)}
        return self.transforms(picture, target)


def loaders():
    """The training pictures, and the validation pictures in two halves: to score widths, and to test."""
    folder = os.path.expanduser(os.environ["COCO"])
    train = Pictures(folder, "train", v2.RandomHorizontalFlip())
    held_out = Pictures(folder, "val")
    halves = [Subset(held_out, range(start, len(held_out), 2)) for start in (0, 1)]
    batches = {"batch_size": BATCH, "collate_fn": padded_boxes(MOST)}
    return DataLoader(train, shuffle=True, drop_last=True, **batches), *(DataLoader(half, **batches) for half in halves)
