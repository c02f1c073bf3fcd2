"""Peers on the same network and images: how long each takes to half of the multiply-adds, and how near it lands.

The network is a ResNet-20 trained for a few epochs on scikit-learn's digits; 256 images held out score it.

The peers are installed from the package index into an environment of their own, which sees the packages of this one,
so that all run on the same torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from safetensors.torch import save_file

from bcnet.data import TrainingBatches, fixed_batches, load
from bcnet.models import resnet20
from bcnet.train import NetworkLearner, Recipe, train
from benchmarks.speed_peer import RATIO, WAYS
from benchmarks.speed_turns import Figure
from studies.shared.provenance import ROOT

PACKAGES = ("nvidia-modelopt==0.47.*", "torch-pruning==1.6.*", "torchprofile<0.1", "requests", "huggingface_hub")
HELD_OUT = 256


class PeerError(Exception):
    """The peers cannot be installed or run; the message says why."""


def figures(rounds: int, epochs: int) -> Iterator[Figure]:
    """Seconds, distance and number of scored candidates of every way.

    Raises:
        PeerError: the peers cannot be installed, or one failed.
    """
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with TemporaryDirectory() as folder:
        python = environment(Path(folder) / "peers")
        start = Path(folder) / "start.safetensors"
        save_file(starting_tensors(epochs), start)
        for _ in range(rounds):
            for way in WAYS:
                runs[way].append(_run(python, way, start))
    for way, found in runs.items():
        seconds, ratios, scored = (np.array([run[key] for run in found]) for key in ("seconds", "ratio", "scored"))
        yield Figure.median(f"{way}, to {RATIO:g} of the multiply-adds", seconds, "s")
        yield Figure.median(f"{way}, off {RATIO:g}", 100 * (ratios / RATIO - 1), "%")
        yield Figure.median(f"{way}, candidates scored", scored, "candidates")


def environment(folder: Path) -> str:
    """The Python of a new environment in `folder` with the peers.

    Raises:
        PeerError: they cannot be installed.
    """
    python = folder / "bin" / "python"
    _checked([sys.executable, "-m", "venv", str(folder)])
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = Path(_checked(ask).strip())
    (own / "shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    constraints = ("--constraint", str(ROOT / "constraints.txt"))
    _checked([str(python), "-m", "pip", "install", "--quiet", *constraints, *PACKAGES])
    return str(python)


def starting_tensors(epochs: int) -> dict[str, torch.Tensor]:
    """The trained network's tensors, with the `images` and `labels` that score it."""
    digits = load("digits", image_size=16)
    torch.manual_seed(0)
    network = resnet20(in_channels=1)
    training = digits.train.subset(range(HELD_OUT, len(digits.train)))
    batches = TrainingBatches(training, 64, digits.normaliser, digits.augmentation)
    train(NetworkLearner(network), batches, Recipe(lr=0.05, batch_size=64, epochs=epochs, precision="fp32"), seed=0)
    ((images, labels),) = fixed_batches(digits.train.subset(range(HELD_OUT)), HELD_OUT, digits.normaliser)
    tensors = network.state_dict() | {"images": images, "labels": labels}
    return {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}


def _run(python: str, way: str, start: Path) -> dict[str, float]:
    command = [python, "-m", "benchmarks.speed_peer", way, str(start), str(torch.get_num_threads())]
    run: dict[str, float] = json.loads(_checked(command).strip().splitlines()[-1])
    return run


def _checked(command: list[str]) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise PeerError(f"{' '.join(command[:4])} ... failed: {last}")
    return done.stdout
