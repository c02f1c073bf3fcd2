"""Spoken digits as log-mel spectrograms, and a network of depthwise-separable convolutions for keywords.

The recordings are those of the Free Spoken Digit Dataset, 8 kHz: `train/` and `test/` as their authors number them. A
spectrogram has 49 frames of 40 ms, 20 ms apart, and 10 mel bands, as in "Hello Edge: Keyword Spotting on
Microcontrollers" (Zhang, Suda, Lai and Chandra, 2017), whose DS-CNN the network is.
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

RATE = 8000
LENGTH = RATE  # samples: longer recordings are cut, shorter ones filled with silence
FRAMES, BANDS = 49, 10
_WINDOW, _HOP, _TRANSFORM = 320, 160, 512
_LOWEST, _HIGHEST = 20.0, 4000.0
_HELD_OUT = 10  # each tenth recording of the training folder scores widths
_BATCH = 64


class DepthwiseSeparable(nn.Module):
    """A convolution over time and bands, then four depthwise-separable ones, `(batch, 1, 49, 10)` -> ten logits."""

    def __init__(self, num_classes: int = 10, channels: int = 172, blocks: int = 4) -> None:
        super().__init__()
        first = nn.Conv2d(1, channels, (10, 4), stride=(2, 1), padding=(5, 1), bias=False)
        parts = [first, nn.BatchNorm2d(channels), nn.ReLU()]
        for number in range(blocks):
            stride = (2, 2) if number == 0 else (1, 1)
            parts += [
                nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels, 1, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
            ]
        self.features = nn.Sequential(*parts)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


def read_wave(file: Path) -> Tensor:
    """Return one second of 16-bit samples in [-1, 1]."""
    with wave.open(str(file)) as recording:
        samples = np.frombuffer(recording.readframes(LENGTH), dtype="<i2").astype(np.float32) / 2**15
    return torch.from_numpy(np.pad(samples, (0, LENGTH - len(samples))))


def log_mel(waves: Tensor) -> Tensor:
    """Return log-mel spectrograms, `(sounds, samples)` -> `(sounds, 1, 49, 10)`."""
    padded = nn.functional.pad(waves, (0, _WINDOW))
    window = torch.hann_window(_WINDOW)
    spectrum = torch.stft(padded, _TRANSFORM, _HOP, _WINDOW, window, center=False, return_complex=True).abs().square()
    bands = mel_filters() @ spectrum  # (sounds, bands, frames)
    return torch.log(bands + 1e-6)[:, :, :FRAMES].transpose(1, 2)[:, None].contiguous()


def mel_filters() -> Tensor:
    """Return triangles of equal width in mel, `(bands, frequencies)`."""

    def mel(hertz: float) -> float:
        return 2595 * float(np.log10(1 + hertz / 700))

    edges = 700 * (10 ** (torch.linspace(mel(_LOWEST), mel(_HIGHEST), BANDS + 2) / 2595) - 1)
    frequencies = torch.linspace(0, RATE / 2, _TRANSFORM // 2 + 1)
    rise = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rise, fall).clamp(min=0)


def read_sounds(folder: Path, limit: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the spectrograms and classes of a folder with a subfolder for each digit, at most `limit` of each."""
    files = [file for digit in range(10) for file in sorted((folder / str(digit)).glob("*.wav"))[:limit]]
    waves = torch.stack([read_wave(file) for file in files])
    return log_mel(waves), torch.tensor([int(file.parent.name) for file in files])


def loaders(folder: Path, limit: int | None = None) -> tuple[DataLoader, DataLoader, DataLoader]:
    """Return training, validation and test data, normalised by the training data's mean and deviation.

    Args:
        folder: with `train/` and `test/`.
        limit: the most recordings of each digit and part.
    """
    x, y = read_sounds(folder / "train", limit)
    test_x, test_y = read_sounds(folder / "test", limit)
    held = torch.arange(len(y)) % _HELD_OUT == 0
    mean, std = x[~held].mean(), x[~held].std()

    def batches(inputs: Tensor, targets: Tensor, *, shuffle: bool = False) -> DataLoader:
        return DataLoader(TensorDataset((inputs - mean) / std, targets), _BATCH, shuffle=shuffle, drop_last=shuffle)

    return batches(x[~held], y[~held], shuffle=True), batches(x[held], y[held]), batches(test_x, test_y)
