"""Data sets: loading by name, class-balanced splits, and batches prepared on the device."""

from bcnet.data.augmentation import Augmentation, usual_augmentation
from bcnet.data.batches import Batch, TrainingBatches, all_batches, fixed_batches
from bcnet.data.big_images import ResizedCrop
from bcnet.data.files import FilePixels
from bcnet.data.given import given_data
from bcnet.data.images import DataSet, Images, Normaliser
from bcnet.data.loaders import Loaders, cut, loaders_of
from bcnet.data.named import NAMES, imports_code, load, made_by
from bcnet.data.splits import split_validation

__all__ = [
    "NAMES",
    "Augmentation",
    "Batch",
    "DataSet",
    "FilePixels",
    "Images",
    "Loaders",
    "Normaliser",
    "ResizedCrop",
    "TrainingBatches",
    "all_batches",
    "cut",
    "fixed_batches",
    "given_data",
    "imports_code",
    "load",
    "loaders_of",
    "made_by",
    "split_validation",
    "usual_augmentation",
]
