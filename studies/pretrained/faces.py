"""The networks of MTCNN, and patches of photographs with and without a face, as they take them.

"Joint Face Detection and Alignment using Multi-task Cascaded Convolutional Networks" (Zhang et al., 2016): three
networks look at patches of 12, 24 and 48 pixels, and each passes on what it takes for a face.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import interpolate

from studies.shared.torchvision_here import let_torchvision_import

TASKS = {
    "pnet": "imitation:outputs_are=values+values",  # the probabilities are a map of one pixel
    "rnet": "imitation:outputs_are=values+probabilities",
    "onet": "imitation:outputs_are=values+values+probabilities",
}
_SIZES = {"pnet": 12, "rnet": 24, "onet": 48}
_LEAST = {"pnet": 0.6, "rnet": 0.7, "onet": 0.7}  # probability from which MTCNN takes a patch for a face
_PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
_FACES = 100  # the first of the patches from "Labeled Faces in the Wild"; others follow
_TESTED = 20  # of them, which no training sees
_UNSEEN = 1_000_000  # seeds from here on draw test patches


def network(name: str) -> nn.Module:
    """One of the networks, with its weights."""
    if importlib.util.find_spec("facenet_pytorch") is None:
        raise SystemExit("skipped: the networks are of facenet-pytorch: pip install --no-deps facenet-pytorch")
    let_torchvision_import()
    from facenet_pytorch.models import mtcnn

    made: nn.Module = {"pnet": mtcnn.PNet, "rnet": mtcnn.RNet, "onet": mtcnn.ONet}[name]()
    return made.eval()


def patches(name: str, count: int, seed: int) -> Tensor:
    """Return `(count, 3, size, size)` in [-1, 1]: a third are faces, in random order."""
    drawn, faces = _draw(_SIZES[name], count, seed)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return torch.cat([faces, drawn])[order]


@torch.no_grad()
def figures(name: str, narrow: nn.Module, original: nn.Module, seed: int) -> dict[str, float]:
    """Patches decided as the original decides, faces that are found, and by the original, in percent of 2,000."""
    others, faces = _draw(_SIZES[name], 2000, _UNSEEN + seed)
    every = torch.cat([faces, others])
    took, wanted = (_probabilities(found.eval(), every) >= _LEAST[name] for found in (narrow, original))
    return {
        "same_decision": round(100 * float((took == wanted).double().mean()), 2),
        "faces_found": round(100 * float(took[: len(faces)].double().mean()), 2),
        "original_faces_found": round(100 * float(wanted[: len(faces)].double().mean()), 2),
        "others_taken": round(100 * float(took[len(faces) :].double().mean()), 2),
        "original_others_taken": round(100 * float(wanted[len(faces) :].double().mean()), 2),
    }


def _probabilities(found: nn.Module, inputs: Tensor) -> Tensor:
    """That of a face, the last output's second entry, `(n,)`."""
    return torch.cat([found(part)[-1].flatten(1)[:, 1] for part in inputs.split(500)])


def _draw(size: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Patches of photographs and patches with a face, a third of all."""
    random = np.random.default_rng(seed)
    folder = _photographs()
    pictures = [np.asarray(Image.open(folder / name).convert("RGB")) for name in _PHOTOGRAPHS]
    kept = np.load(folder / "lfw_subset.npy")[:_FACES]
    known = kept[-_TESTED:] if seed >= _UNSEEN else kept[:-_TESTED]
    faces = (_one_of(known, random)[..., None].repeat(3, 2) for _ in range(count // 3))
    found = _resized((_varied(_square(face, 20, random), random) for face in faces), size)
    others = (_one_of(pictures, random) / 255 for _ in range(count - count // 3))
    return _resized((_varied(_square(picture, size, random), random) for picture in others), size), found


def _photographs() -> Path:
    found = importlib.util.find_spec("skimage")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("skipped: the photographs are of scikit-image: pip install --no-deps scikit-image")
    return Path(found.submodule_search_locations[0]) / "data"


def _one_of(pictures: Sequence[np.ndarray] | np.ndarray, random: np.random.Generator) -> np.ndarray:
    found: np.ndarray = pictures[random.integers(len(pictures))]
    return found


def _square(picture: np.ndarray, least: int, random: np.random.Generator) -> np.ndarray:
    """A random square of a picture `(H, W, 3)`, of at least so many pixels, small ones more often."""
    most = min(picture.shape[:2])
    side = round(least * (most / least) ** random.random())
    top, left = (random.integers(length - side + 1) for length in picture.shape[:2])
    return picture[top : top + side, left : left + side]


def _varied(patch: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The patch in [0, 1] mirrored or not, with another brightness, contrast and tint."""
    patch = patch[:, ::-1] if random.random() < 0.5 else patch
    tint = random.uniform(0.85, 1.15, 3)
    return np.clip((patch - 0.5) * random.uniform(0.6, 1.4) * tint + 0.5 + random.uniform(-0.15, 0.15), 0, 1)


def _resized(found: Iterable[np.ndarray], size: int) -> Tensor:
    """`(n, 3, size, size)`, bytes less 127.5 over 128 as MTCNN has them."""
    rows = [
        interpolate(torch.tensor(patch.copy()).permute(2, 0, 1)[None], (size, size), mode="bilinear", antialias=True)
        for patch in found
    ]
    return ((torch.cat(rows) * 255 - 127.5) / 128).float()
