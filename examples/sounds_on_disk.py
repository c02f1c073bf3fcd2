"""A folder of sounds for each class, read by soundfile: a network of convolutions along time, narrowed.

    cd examples
    pip install soundfile
    export SOUNDS=~/data/speech_commands
    bcnet search --model sounds_on_disk:Listener --data sounds_on_disk:loaders --budget 0.5 --out runs/sounds

`SOUNDS` is a folder with `CLASS/*.wav` (or FLAC, OGG, MP3), mono or stereo. A tenth of the files scores widths, a tenth
tests; which, their names say, so that it stays the same when files are added.
"""

import os
import zlib
from pathlib import Path

import soundfile
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import bcnet

RATE = 16_000  # samples a second
LENGTH = 16_000  # samples of a sound: longer ones are cut, shorter ones filled with silence
BATCH = 32
SUFFIXES = {".wav", ".flac", ".ogg", ".mp3"}


class Listener(nn.Module):
    """Convolutions on the wave itself (M5 of Dai et al., 2017)."""

    def __init__(self, num_classes: int = 35, channels: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            self.layer(1, channels, 80, stride=4),
            self.layer(channels, channels, 3),
            self.layer(channels, 2 * channels, 3),
            self.layer(2 * channels, 4 * channels, 3),
        )
        self.head = nn.Linear(4 * channels, num_classes)

    @staticmethod
    def layer(inputs: int, outputs: int, length: int, stride: int = 1) -> nn.Sequential:
        convolution = nn.Conv1d(inputs, outputs, length, stride, padding=length // 2, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm1d(outputs), nn.ReLU(inplace=True), nn.MaxPool1d(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean(2))


class Sounds(Dataset):
    """Waves `(1, LENGTH)` in [-1, 1] and their classes."""

    def __init__(self, files: list[Path], classes: list[str]) -> None:
        self.files, self.classes = files, classes

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int):
        file = self.files[number]
        try:
            wave, rate = soundfile.read(file, frames=LENGTH, dtype="float32", always_2d=True, fill_value=0.0)
        except soundfile.SoundFileError as error:
            raise ValueError(f"{file} cannot be read as a sound: {error}") from None
        if rate != RATE:
            raise ValueError(f"sounds have {RATE:,} samples a second; {file} has {rate:,}: convert it, or change RATE")
        return torch.from_numpy(wave.mean(axis=1))[None], self.classes.index(file.parent.name)


def loaders():
    """Training sounds, those that score widths, and those that test."""
    folder = Path(os.environ["SOUNDS"]).expanduser()
    files = sorted(file for file in folder.glob("*/*") if file.suffix.lower() in SUFFIXES)
    if not files:
        raise ValueError(f"sounds are in a folder for each class, {folder}/CLASS/*.wav; there are none")
    classes = sorted({file.parent.name for file in files})
    tenths = [zlib.crc32(f"{file.parent.name}/{file.name}".encode()) % 10 for file in files]
    parts = [
        [file for file, tenth in zip(files, tenths, strict=True) if tenth in some] for some in ({*range(8)}, {8}, {9})
    ]
    train, *others = (Sounds(part, classes) for part in parts)
    held_out = [DataLoader(part, BATCH) for part in others]
    name = f"sounds of {folder.name}"
    return bcnet.Loaders(DataLoader(train, BATCH, shuffle=True), *held_out, name=name, class_names=tuple(classes))
