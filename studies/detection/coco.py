"""Folders in COCO's format: `annotations/instances_SPLIT.json` beside a folder `SPLIT` of images."""

from __future__ import annotations

import importlib.util
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch.utils.data import Dataset

from bcnet.errors import DataError
from bcnet.tasks import AP, Found, Truth, average_precision

Target = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Split:
    """One split: its images in the order of their ids, their annotations, and the category of label 1, 2, ..."""

    annotation_file: Path
    folder: Path
    images: tuple[dict[str, Any], ...]
    annotations: dict[int, list[dict[str, Any]]]
    categories: tuple[int, ...]

    @classmethod
    def read(cls, root: Path, name: str) -> Split:
        file = root / "annotations" / f"instances_{name}.json"
        folder = root / name
        for path in (file, folder):
            if not path.exists():
                raise DataError(
                    f"a COCO-format folder has annotations/instances_{name}.json and a folder {name} of images; "
                    f"{path} is not there: give --data and the names of the splits"
                )
        content = json.loads(file.read_text())
        annotations: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for annotation in content["annotations"]:
            annotations[annotation["image_id"]].append(annotation)
        images = tuple(sorted(content["images"], key=lambda image: image["id"]))
        return cls(file, folder, images, annotations, tuple(sorted(c["id"] for c in content["categories"])))

    def truth(self, image: dict[str, Any], *, crowds: bool) -> Truth:
        """Boxes, labels and crowds of an image; without crowds, and without empty boxes, for training."""
        own = self.annotations.get(image["id"], [])
        boxes = np.array([annotation["bbox"] for annotation in own], dtype=np.float64).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]  # width and height to the other corner
        labels = np.array([1 + self.categories.index(annotation["category_id"]) for annotation in own], dtype=np.int64)
        crowd = np.array([bool(annotation.get("iscrowd", 0)) for annotation in own], dtype=bool)
        if crowds:
            return Truth(boxes, labels, crowd)
        boxes = boxes.clip(0, [image["width"], image["height"]] * 2)
        kept = ~crowd & (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        return Truth(boxes[kept], labels[kept], crowd[kept])


class Images(Dataset[tuple[torch.Tensor, Target]]):
    """Images `(3, height, width)` in [0, 1] with their targets; for training those with objects, half of them flipped.

    Which ones are flipped depends on `seed` alone, so that workers may load them in any order.
    """

    def __init__(self, split: Split, *, training: bool, seed: int = 0) -> None:
        self._split = split
        self._training = training
        self.truths = [split.truth(image, crowds=not training) for image in split.images]
        self.places = [i for i, truth in enumerate(self.truths) if len(truth.boxes) or not training]
        flips = torch.rand(len(split.images), generator=torch.Generator().manual_seed(seed)) < 0.5
        self._flips = flips if training else torch.zeros_like(flips)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Target]:
        place = self.places[index]
        with Image.open(self._split.folder / self._split.images[place]["file_name"]) as file:
            pixels = np.array(file.convert("RGB"))
        image = torch.from_numpy(pixels).permute(2, 0, 1).float() / 255
        boxes = torch.from_numpy(self.truths[place].boxes).float()
        if self._flips[place]:
            image = image.flip(2)
            boxes = torch.stack(
                [image.shape[2] - boxes[:, 2], boxes[:, 1], image.shape[2] - boxes[:, 0], boxes[:, 3]], 1
            )
        return image, {"boxes": boxes, "labels": torch.from_numpy(self.truths[place].labels)}


def has_pycocotools() -> bool:
    return importlib.util.find_spec("pycocotools") is not None


def evaluate(split: Split, found: list[Found]) -> AP:
    """COCO AP of the detections in the images of the split, in order: by pycocotools, or ours where it is missing."""
    if not has_pycocotools():
        return average_precision([split.truth(image, crowds=True) for image in split.images], found)
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    results = [
        {
            "image_id": image["id"],
            "category_id": split.categories[int(label) - 1],
            "bbox": [*map(float, box[:2]), *map(float, box[2:] - box[:2])],
            "score": float(score),
        }
        for image, one in zip(split.images, found, strict=True)
        for box, label, score in zip(one.boxes, one.labels, one.scores, strict=True)
    ]
    if not results:
        return AP(0.0, 0.0)
    truth = COCO(str(split.annotation_file))
    judge = COCOeval(truth, truth.loadRes(results), "bbox")
    judge.evaluate()
    judge.accumulate()
    judge.summarize()
    return AP(100 * float(judge.stats[0]), 100 * float(judge.stats[1]))


COLOURS = {2: "red", 7: "blue"}  # category ids with a gap, as COCO's have


def tiny_folder(root: Path, *, images: int = 12, seed: int = 0) -> Path:
    """A COCO-format folder of coloured rectangles, two categories, 64 to 128 pixels a side; `train2017`, `val2017`."""
    rng = np.random.default_rng(seed)
    for name in ("train2017", "val2017"):
        (root / name).mkdir(parents=True)
        content: dict[str, list[dict[str, Any]]] = {
            "images": [],
            "annotations": [],
            "categories": [{"id": id_, "name": colour} for id_, colour in COLOURS.items()],
        }
        for number in range(images):
            _draw(root / name, 10 * number + 1, content, rng)
        (root / "annotations").mkdir(exist_ok=True)
        (root / "annotations" / f"instances_{name}.json").write_text(json.dumps(content))
    return root


def _draw(folder: Path, id_: int, content: dict[str, list[dict[str, Any]]], rng: np.random.Generator) -> None:
    """One image of up to three rectangles, the last image of a folder of none; its entries go into `content`."""
    width, height = (int(side) for side in rng.integers(64, 129, 2))
    picture = Image.new("RGB", (width, height), "white")
    for _ in range(int(rng.integers(0, 4))):
        w = int(rng.integers(12, width // 2))
        h = int(rng.integers(12, height // 2))
        x = int(rng.integers(0, width - w))
        y = int(rng.integers(0, height - h))
        category = int(rng.choice(list(COLOURS)))
        ImageDraw.Draw(picture).rectangle((x, y, x + w - 1, y + h - 1), fill=COLOURS[category])
        content["annotations"].append(
            {
                "id": len(content["annotations"]) + 1,
                "image_id": id_,
                "category_id": category,
                "bbox": [x, y, w, h],
                "area": w * h,
                "iscrowd": 0,
            }
        )
    file_name = f"{id_:012d}.jpg"
    picture.save(folder / file_name, quality=95)
    content["images"].append({"id": id_, "file_name": file_name, "width": width, "height": height})
