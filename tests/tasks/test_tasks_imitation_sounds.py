"""Folders of sounds as the inputs of an imitation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import wavfile
from tiny_job import RECIPE, Notes
from torch import nn

import bcnet
from bcnet.data.sounds import Framing, read_wav
from bcnet.data.unlabelled import load_inputs
from bcnet.errors import DataError, RecipeError
from bcnet.export.card import model_card
from bcnet.run.finished import FinishedRun
from bcnet.tasks import Imitation, task_named


class Listener(nn.Module):
    """Takes frames `(n, 64)`, as many networks of sounds do, and tells one of three things."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(1, 8, 9, 4), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 16, 5), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.layers(x[:, None]).mean(2))


def write_wave(file, seconds, rate=8000, hertz=440.0, kind=np.int16, channels=1):
    """A tone of half the full scale."""
    file.parent.mkdir(parents=True, exist_ok=True)
    tone = 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)
    if kind == np.uint8:
        samples = np.round(128 + 127 * tone)
    else:
        samples = tone if np.dtype(kind).kind == "f" else np.round(tone * np.iinfo(kind).max)
    samples = samples.astype(kind)
    wavfile.write(file, rate, np.stack([samples] * channels, axis=1) if channels > 1 else samples)
    return tone


def every_input(loaders):
    return torch.cat([x for loader in (loaders.train, loaders.validation, loaders.test) for x, _ in loader])


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("channels", [1, 2])
def test_every_kind_of_sample_is_the_same_sound(kind, channels, tmp_path):
    tone = write_wave(tmp_path / "a.wav", 0.1, kind=kind, channels=channels)
    rate, sound = read_wav(tmp_path / "a.wav")
    assert rate == 8000
    assert sound.dtype == np.float32
    np.testing.assert_allclose(sound, tone, atol=0.01 if kind == np.uint8 else 1e-4)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4000), st.integers(1, 300), st.sampled_from([0, 4000, 8000, 11025]), st.booleans())
def test_frames_follow_each_other_and_lose_only_the_rest(samples, length, rate, standardised):
    sound = np.random.default_rng(samples).uniform(-1, 1, samples).astype(np.float32)
    frames = Framing(rate, (1, length), standardised).cut(sound, 8000)
    wanted = samples if rate in (0, 8000) else math.ceil(samples * rate / 8000)
    assert frames.shape == (wanted // length, 1, length)
    assert frames.dtype == np.float32
    if rate in (0, 8000) and not standardised:
        assert np.array_equal(frames.reshape(-1), sound[: len(frames) * length])
    if standardised and length > 1 and len(frames):
        np.testing.assert_allclose(frames.mean(axis=-1), 0, atol=1e-4)
        np.testing.assert_allclose(frames.std(axis=-1), 1, atol=1e-3)


def test_a_tone_keeps_its_pitch_when_it_is_resampled(tmp_path):
    write_wave(tmp_path / "a.wav", 1, rate=8000, hertz=500)
    _, sound = read_wav(tmp_path / "a.wav")
    frame = Framing(16000, (16000,)).cut(sound, 8000)[0]
    assert np.abs(np.fft.rfft(frame)).argmax() == 500, "bins are of 1 Hz"


def test_frames_of_a_recording_stay_together(tmp_path):
    for number in range(40):
        level = np.full(500, (number + 1) * 100, np.int16)
        wavfile.write(tmp_path / f"{number:02}.wav", 8000, level)
    loaders = load_inputs(str(tmp_path), None, "imagenet", Framing(0, (50,)))
    assert len(every_input(loaders)) == 400
    parts = [
        {round(float(x) * 32768) for batch, _ in part for x in batch[:, 0]} for part in (loaders.train, loaders.test)
    ]
    assert len(parts[0] & parts[1]) <= 1, "frames of one recording are alike: what was trained on is no test"


def test_a_search_takes_a_folder_of_sounds_and_says_how_they_become_inputs(tmp_path):
    for number in range(60):
        write_wave(tmp_path / "sounds" / f"{number % 3}" / f"{number}.WAV", 0.05, hertz=100 + 10 * number)
    write_wave(tmp_path / "sounds" / "short.wav", 0.001)
    (tmp_path / "sounds" / "notes.txt").write_text("no sound")
    torch.manual_seed(0)
    notes = Notes()
    outcome = bcnet.search(
        Listener().eval(),
        f"inputs:{tmp_path / 'sounds'}",
        bcnet.Budget(macs=0.5),
        tmp_path / "run",
        task="imitation:samples=64,rate=4000,standardise=true,outputs_are=logits",
        method=bcnet.Uniform(),
        training=RECIPE.with_changes({"epochs": 1}),
        progress=False,
        reporter=notes,
    )
    assert outcome.network is not None
    said = " ".join(notes.notes)
    assert "180 frames of 61 WAV files" in said
    assert "1 are shorter than a frame and ignored" in said
    finished = FinishedRun.read(tmp_path / "run", Listener)
    assert finished.input.shape == (64,)
    assert "Preparation of inputs: mono, 4,000 samples a second, frames of 64 samples, each standardised" in model_card(
        finished, []
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("samples=0", r'^samples must be the shape of a frame of sound, "1024" or "1x1024"; got \'0\'$'),
        ("samples=2x1024", "shape of a frame"),
        ("samples=64,rate=-1", "^the rate of sounds must be in samples a second, 16000 for instance; got -1$"),
        ("rate=16000", "say how long a frame is"),
        ("standardise=true", "say how long a frame is"),
    ],
)
def test_settings_of_sounds_are_checked(settings, message):
    with pytest.raises(RecipeError, match=message):
        task_named(f"imitation:{settings}")


def test_folders_of_sounds_that_cannot_be_read_are_refused(tmp_path):
    folder = tmp_path / "sounds"
    framed = Imitation(samples="1x64")
    folder.mkdir()
    with pytest.raises(DataError, match="at least 40 inputs; got 0 WAV files in"):
        framed.read(str(folder), None)
    write_wave(folder / "a.wav", 0.1)
    with pytest.raises(DataError, match="at least 40 inputs; got 12 frames of 64 samples in 1 WAV files"):
        framed.read(str(folder), None)
    with pytest.raises(DataError, match=r"got 1 WAV files in .*: say how long.*imitation:samples=1024"):
        Imitation().read(str(folder), None)
    write_wave(folder / "b.wav", 1, rate=16000)
    with pytest.raises(DataError, match=r"got 8,000 samples a second in .*a\.wav and 16,000 in .*b\.wav: say the rate"):
        framed.read(str(folder), None)
    assert Imitation(samples="1x64", rate=16000).read(str(folder), None).held_out[0].shape[1:] == (1, 64)
    (folder / "c.wav").write_bytes((folder / "a.wav").read_bytes()[:30])
    with pytest.raises(DataError, match=r"c\.wav cannot be read as a WAV file"):
        Imitation(samples="64", rate=16000).read(str(folder), None)
    (folder / "b.wav").unlink()
    wavfile.write(folder / "c.wav", 8000, np.full(100, np.nan, np.float32))
    with pytest.raises(DataError, match=r"samples must be finite; .*c\.wav has others"):
        framed.read(str(folder), None)
