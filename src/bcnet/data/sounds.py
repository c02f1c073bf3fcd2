"""Folders of WAV files, cut into frames of equal length."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bcnet.data.folders import MOST_BYTES, files_under
from bcnet.errors import DataError

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Framing:
    """Converts a recording to inputs of shape `shape`, whose last dimension is the samples of a frame.

    Channels are averaged, and the sound is resampled to `rate` samples per second (0: unchanged). Frames are
    consecutive without overlap; a shorter rest is dropped. Samples are in [-1, 1]. `standardised` subtracts each
    frame's mean and divides by its standard deviation.
    """

    rate: int
    shape: tuple[int, ...]
    standardised: bool = False

    def __str__(self) -> str:
        rate = f"{self.rate:,} samples a second" if self.rate else "without resampling"
        level = "each standardised" if self.standardised else "in [-1, 1]"
        return f"mono, {rate}, frames of {self.shape[-1]:,} samples, {level}"

    def cut(self, sound: Samples, rate: int) -> Samples:
        """Return the frames `(n, *shape)` of a recording `(samples,)`."""
        if self.rate and rate != self.rate:
            from scipy.signal import resample_poly  # scipy takes a tenth of a second to import

            shared = math.gcd(rate, self.rate)
            sound = resample_poly(sound, self.rate // shared, rate // shared).astype(np.float32)
        length = self.shape[-1]
        count = len(sound) // length
        frames = sound[: count * length].reshape(count, length)
        if self.standardised:
            frames = frames - frames.mean(axis=1, keepdims=True)
            frames = frames / np.maximum(frames.std(axis=1, keepdims=True), 1e-10)
        return frames.reshape(count, *self.shape)


def files_of_sounds(folder: Path) -> list[Path]:
    """Return all WAV files under a folder, sorted, at any depth and through links."""
    return [file for file in files_under(folder) if file.suffix.lower() == ".wav"]


def read_frames(files: Sequence[Path], framing: Framing) -> list[Samples]:
    """Return the frames of each recording.

    Raises:
        DataError: an unreadable file, recordings of different rates without resampling, or more than two gigabytes of
            frames.
    """
    found: list[Samples] = []
    first: tuple[int, Path] | None = None
    room = MOST_BYTES
    for file in files:
        rate, sound = read_wav(file)
        first = first or (rate, file)
        if not framing.rate and rate != first[0]:
            raise DataError(
                f"recordings must have one rate; got {first[0]:,} samples a second in {first[1]} and {rate:,} in "
                f"{file}: say the rate that the network takes (imitation:rate=16000)"
            )
        found.append(framing.cut(sound, rate))
        room -= found[-1].nbytes
        if room < 0:
            raise DataError(
                f"a folder of sounds takes at most two gigabytes as frames; got more by {file}: give a part of them, "
                "or a loader of your own"
            )
    return found


def read_wav(file: Path) -> tuple[int, Samples]:
    """Return the sample rate of a recording, and its samples in [-1, 1], averaged over channels.

    Raises:
        DataError: not a WAV file of integer or floating-point samples, or a sample that is not finite.
    """
    from scipy.io import wavfile

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wavfile.WavFileWarning)  # chunks with tags
            rate, read = wavfile.read(file)
    except Exception as error:  # a corrupt file makes SciPy raise errors of any type
        raise DataError(f"{file} cannot be read as a WAV file: {error}; convert it, or leave it out") from None
    if rate <= 0:
        raise DataError(f"a recording must have a positive rate; {file} has {rate}: convert it, or leave it out")
    sound = _scale(read)
    if sound.ndim == 2:
        sound = np.asarray(sound.mean(axis=1), np.float32)
    if not np.isfinite(sound).all():
        raise DataError(f"samples must be finite; {file} has others: convert it, or leave it out")
    return int(rate), sound


def _scale(read: npt.NDArray[Any]) -> Samples:
    """Scale samples of any type to [-1, 1]: bytes are centred at 128, and 24 bits are the upper ones of 32."""
    if read.dtype == np.uint8:
        return (read.astype(np.float32) - np.float32(128)) / np.float32(128)
    if read.dtype.kind == "i":
        return read.astype(np.float32) / np.float32(-float(np.iinfo(read.dtype).min))
    return read.astype(np.float32, copy=False)
