"""Pictures with masks on disk, read and augmented by torchvision: a U-Net of one's own, narrowed.

    cd examples
    export VOC=~/data
    bcnet search --model masks_on_disk:UNet --data masks_on_disk:loaders --task segmentation:classes=21 \
        --budget 0.5 --out runs/voc

`VOC` is the folder with `VOCdevkit/VOC2012` in it (or without it, where torchvision puts it). Other data sets of
torchvision with masks, OxfordIIITPet and Cityscapes among them, are loaded alike.
"""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision import tv_tensors
from torchvision.datasets import VOCSegmentation, wrap_dataset_for_transforms_v2
from torchvision.transforms import v2

SIZE = 128  # of the pictures, in pixels
BATCH = 16


class UNet(nn.Module):
    """Two levels down and up again, with what was there on the way down beside it."""

    def __init__(self, num_classes: int = 21, channels: int = 32) -> None:
        super().__init__()
        self.first = self.layer(3, channels)
        self.down = self.layer(channels, 2 * channels, stride=2)
        self.deep = self.layer(2 * channels, 4 * channels, stride=2)
        self.up = nn.ConvTranspose2d(4 * channels, 2 * channels, 2, 2)
        self.beside = self.layer(4 * channels, 2 * channels)
        self.last_up = nn.ConvTranspose2d(2 * channels, channels, 2, 2)
        self.last = nn.Sequential(self.layer(2 * channels, channels), nn.Conv2d(channels, num_classes, 1))

    @staticmethod
    def layer(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        down = self.down(first)
        x = self.beside(torch.cat([down, self.up(self.deep(down))], 1))
        return self.last(torch.cat([first, self.last_up(x)], 1))


def prepared(*augmentation: v2.Transform) -> v2.Compose:
    """Transforms of a picture and its mask together: classes stay classes, 255 stays what does not count."""
    numbers = v2.ToDtype({tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}, scale=True)
    normalised = v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    return v2.Compose([v2.ToImage(), *augmentation, numbers, normalised])


def batch(items):
    """Pictures `(batch, 3, H, W)` and masks `(batch, H, W)`."""
    pictures, masks = zip(*items, strict=True)
    return torch.stack(pictures), torch.cat(masks)  # masks come as (1, H, W)


def loaders():
    """The training pictures, and the validation pictures in two halves: to score widths, and to test."""
    folder = os.path.expanduser(os.environ["VOC"])
    augmented = prepared(v2.RandomResizedCrop(SIZE, (0.5, 1.0), antialias=True), v2.RandomHorizontalFlip())
    whole = prepared(v2.Resize(SIZE, antialias=True), v2.CenterCrop(SIZE))

    def read(part: str, transforms: v2.Compose) -> torch.utils.data.Dataset:
        return wrap_dataset_for_transforms_v2(VOCSegmentation(folder, "2012", part, transforms=transforms))

    held_out = read("val", whole)
    halves = [Subset(held_out, range(start, len(held_out), 2)) for start in (0, 1)]
    train = DataLoader(read("train", augmented), BATCH, shuffle=True, drop_last=True, collate_fn=batch)
    return train, *(DataLoader(half, BATCH, collate_fn=batch) for half in halves)
