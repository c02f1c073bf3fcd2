"""What a recipe and a data set have to agree on: how images are augmented, and how many are held out."""

from __future__ import annotations

from bcnet.data import Augmentation, DataSet, FilePixels, Images, ResizedCrop
from bcnet.train import Recipe
from bcnet.train.recipe import Crop

_MOST_HELD_OUT = 5000  # images in files: a tenth of ImageNet would not fit into memory, and scoring it would take hours


def augmentation_of(recipe: Recipe, data: DataSet) -> Augmentation | ResizedCrop:
    """The recipe's augmentation, or where it says nothing the data set's.

    Raises:
        DataError: torchvision is needed, and missing.
    """
    wanted = recipe.augmentation
    if wanted is None:
        return data.augmentation
    if isinstance(wanted, Crop):
        return Augmentation(wanted.padding, wanted.flip)
    return ResizedCrop(wanted.min_area, wanted.flip, wanted.colour_jitter)


def held_out_share(images: Images, fraction: float) -> float:
    """The share of the training images to hold out: `fraction`, of images in files at most 5,000 images."""
    if isinstance(images.pixels, FilePixels):
        return min(fraction, _MOST_HELD_OUT / len(images))
    return fraction
