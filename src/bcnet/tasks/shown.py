"""Images in a report: pictures with masks or boxes, and captions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

# Okabe and Ito's colours, distinguishable with any colour vision
_COLOURS = torch.tensor(
    [[86, 180, 233], [230, 159, 0], [0, 158, 115], [240, 228, 66], [0, 114, 178], [213, 94, 0], [204, 121, 167]]
)
_SIDE = 128  # smallest longer side of a picture in pixels; at most twice as many
_SHADE = 0.55  # opacity of a mask's colour
_NAMES = 3  # objects named in a caption; the others are counted


@dataclass(frozen=True)
class Shown:
    """Images for a report: `pictures` uint8 `(images, 3, H, W)`, or None, and `words` for each."""

    pictures: Tensor | None = None
    words: tuple[str, ...] = ()


def picture_of(values: Tensor, low: float | None = None, high: float | None = None) -> Tensor | None:
    """Return images `(images, channels, H, W)` as uint8 `(images, 3, h, w)`, enlarged if small.

    Grey is repeated; of other than 1 or 3 channels the mean is shown. `low` and `high` become black and white, by
    default the extremes of all images. None if the values are not images.
    """
    if values.ndim != 4:
        return None
    images = values.float().cpu()
    images = images if images.shape[1] == 3 else images.mean(dim=1, keepdim=True).expand(-1, 3, -1, -1)
    least = float(images.min()) if low is None else low
    most = float(images.max()) if high is None else high
    scaled = ((images - least) / max(most - least, 1e-12)).clamp(0, 1).nan_to_num(0.0)
    return (255 * at_a_size(scaled)).round().to(torch.uint8)


def at_a_size(images: Tensor) -> Tensor:
    """Scale images `(images, channels, H, W)` to a longer side of 128 to 256 pixels, small ones by whole factors."""
    longest = max(images.shape[-2:])
    if longest < _SIDE:
        times = math.ceil(_SIDE / longest)
        return images.repeat_interleave(times, dim=-2).repeat_interleave(times, dim=-1)
    if longest <= 2 * _SIDE:
        return images
    size = [max(1, round(side * 2 * _SIDE / longest)) for side in images.shape[-2:]]
    return functional.interpolate(images, size=size, mode="area")


def with_masks(pictures: Tensor, masks: Tensor, left_out: Sequence[int] = ()) -> Tensor:
    """Return pictures `(images, 3, H, W)` with a colour for every class of `masks`, int `(images, h, w)`.

    Pixels of the classes `left_out` are only darkened.
    """
    sized = functional.interpolate(masks[:, None].float().cpu(), size=pictures.shape[-2:], mode="nearest")[:, 0].long()
    colours = _COLOURS[sized % len(_COLOURS)].movedim(-1, 1)  # (images, 3, H, W)
    plain = torch.isin(sized, torch.tensor(list(left_out), dtype=torch.int64))[:, None]
    shaded = torch.where(plain, pictures * (1 - _SHADE), (1 - _SHADE) * pictures + _SHADE * colours)
    return shaded.round().to(torch.uint8)


def with_boxes(picture: Tensor, boxes: Tensor, labels: Tensor) -> Tensor:
    """Return a picture `(3, H, W)` with outlines of `boxes` `(n, 4)` in pixels, coloured by `labels`."""
    drawn = picture.clone()
    height, width = picture.shape[-2:]
    thick = max(2, max(height, width) // 64)
    for box, label in zip(boxes.round().long().tolist(), labels.tolist(), strict=True):
        left, top, right, bottom = (max(0, corner) for corner in box)
        right = min(right, width)
        bottom = min(bottom, height)
        colour = _COLOURS[label % len(_COLOURS)].to(drawn.dtype)[:, None, None]
        drawn[:, top : top + thick, left:right] = colour
        drawn[:, max(top, bottom - thick) : bottom, left:right] = colour
        drawn[:, top:bottom, left : left + thick] = colour
        drawn[:, top:bottom, max(left, right - thick) : right] = colour
    return drawn


def list_words(words: Sequence[str], none: str = "none") -> str:
    """Join some of the words: "cat, dog, 3 more"."""
    if len(words) <= _NAMES + 1:
        return ", ".join(words) or none
    return f"{', '.join(words[:_NAMES])}, {len(words) - _NAMES} more"


def name_of(label: int, names: Sequence[str]) -> str:
    """Return the name of a class, or its number."""
    return names[label] if 0 <= label < len(names) else str(label)
