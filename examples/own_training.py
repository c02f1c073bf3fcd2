"""A network, a data set, batches, a loss and a score of one's own: tones that rise, fall or stay, in noise.

    python examples/own_training.py runs/tones
    python examples/own_training.py runs/try --quick

Nothing of a training of your own has to be given up: `bcnet` takes the loaders' batches as they come.
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import bcnet

KINDS = ("rising", "falling", "level")
BANDS, TIMES = 16, 24  # of a spectrogram


class Tones(Dataset):
    """Spectrograms `(1, BANDS, TIMES)` of one tone each; item `i` is always the same, but for what training changes."""

    def __init__(self, count: int, seed: int, *, training: bool = False) -> None:
        self.count, self.seed, self.training = count, seed, training

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        label = index % len(KINDS)
        draws = torch.Generator().manual_seed(self.seed * self.count + index)
        start = torch.rand(1, generator=draws) * 4 + 6
        slope = (0.25, -0.25, 0.0)[label]
        pitch = start + slope * torch.arange(TIMES)  # band of the tone at each time
        sound = torch.exp(-((torch.arange(BANDS)[:, None] - pitch) ** 2))
        sound = sound + 0.3 * torch.randn(BANDS, TIMES, generator=draws)
        if self.training:  # louder or softer, by torch's own generator, which a run seeds before every batch
            sound = sound * (0.5 + torch.rand(1))
        return sound[None], label


class Listener(nn.Module):
    """Two residual convolutions, then a mean over time and bands."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))
        self.wide = nn.Sequential(nn.Conv2d(channels, 24, 3, stride=2), nn.BatchNorm2d(24), nn.ReLU())
        self.head = nn.Linear(24, len(KINDS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = torch.relu(x + self.middle(x))
        return self.head(self.wide(x).mean((2, 3)))


def focal_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy that counts what is still hard (Lin et al., 2017): the mean of (1 - p)^2 * -log p."""
    log_p = logits.log_softmax(1).gather(1, labels[:, None])[:, 0]  # (batch,)
    return ((1 - log_p.exp()) ** 2 * -log_p).mean()


def sureness(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """What judges widths: the probability of the right kind, for each image `(batch,)`."""
    return logits.softmax(1).gather(1, labels[:, None])[:, 0]


def main() -> None:
    options = arguments()
    count = 96 if options.quick else 1500
    loaders = bcnet.Loaders(
        DataLoader(Tones(count, 0, training=True), batch_size=32, shuffle=True, drop_last=True),
        DataLoader(Tones(count // 2, 1), batch_size=32),  # judges widths
        DataLoader(Tones(count // 2, 2), batch_size=32),  # tests the final networks, once each
        name="tones",
        class_names=KINDS,
    )
    outcome = bcnet.search(
        Listener,
        loaders,
        budget=bcnet.Budget(macs=0.5),
        run_dir=options.run,
        training=bcnet.Recipe(lr=0.05, batch_size=32, epochs=1 if options.quick else 10),
        loss=focal_loss,
        method=bcnet.Trainings(score=sureness),
        progress=True,
    )
    for group in outcome.result.groups:
        print(f"{group.name}: {group.searched} of {group.max_width} channels")
    exported = bcnet.export_run(options.run, Listener, format="safetensors")
    network = bcnet.load(exported.path, Listener)  # as anybody does who has the class and the file
    print("A rising tone is heard as", KINDS[int(network(Tones(1, 3)[0][0][None]).argmax())])
    print(f"Report: {outcome.run_dir / 'report.html'}\nNetwork: {exported.path}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Search widths with a training of one's own.")
    parser.add_argument("run", type=Path, help="run directory, new or to go on with")
    parser.add_argument("--quick", action="store_true", help="few tones, one epoch, few candidates")
    return parser.parse_args()


if __name__ == "__main__":
    main()
