"""Whole trainings and scoring on a device, in images a second, against full-width training on the same one.

Trainings are whole calls of `bcnet.train.train`: batches drawn and augmented on the device, widths drawn anew in every
step, the guard against bad steps, the looks at losses. A step of the supernet shows every image to four paths, counted
once; a candidate is scored on both sides, and an image counted for each. The wall clock is read when the device is
done with all that it was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
import torch

from bcnet.data import Augmentation, Images, Normaliser, TrainingBatches, fixed_batches
from bcnet.machine.devices import autocast
from bcnet.machine.timing import prepare_nothing
from bcnet.searchers import SupernetEvaluator
from bcnet.space import Side, Widths
from bcnet.supernet import Supernet
from bcnet.train import Learner, NetworkLearner, Recipe, train
from benchmarks.speed_turns import Call, Figure, Pace, in_turns
from benchmarks.speed_workloads import Workload

OURS = "supernet"
FULL = "full"
SCORING = "scoring"
BATCHES = 4  # of an epoch, and of a candidate's score
CANDIDATES = 4
_NORMALISER = Normaliser((0.5,) * 3, (0.25,) * 3)
_AUGMENTATION = Augmentation(padding=4, flip=True)


def figures(work: Workload, scored: int, epochs: int, pace: Pace) -> Iterator[Figure]:
    """Images a second of both trainings, of `epochs` epochs, and of scoring in batches of `scored` images."""
    arms = Arms(work, scored, epochs)
    turns = in_turns(arms, pace, device=work.device)
    images = {OURS: arms.trained, FULL: arms.trained, SCORING: 2 * CANDIDATES * BATCHES * scored}
    speeds = {name: images[name] / turns.seconds(name) for name in images}
    yield Figure.median(f"supernet training ({work.chosen})", speeds[OURS], "images/s")
    yield Figure.median(f"full-width training ({work.chosen})", speeds[FULL], "images/s")
    yield Figure.median(f"scoring ({work.chosen})", speeds[SCORING], "images/s")
    yield turns.ratio("supernet step / full-width step", OURS, FULL)
    yield Figure.median("scoring / full-width training, images", speeds[SCORING] / speeds[FULL], "ratio")


class Arms:
    """What a round compares. `trained` is the number of images of a training."""

    def __init__(self, work: Workload, scored: int, epochs: int) -> None:
        self._work = work
        self._seeds = count()
        images = _images(work, BATCHES * work.batch)
        self._recipe = Recipe(lr=1e-3, batch_size=work.batch, epochs=epochs, precision=work.chosen.precision)
        self._batches = TrainingBatches(images, work.batch, _NORMALISER, _AUGMENTATION, device=work.device)
        self._ours = work.supernet_learner(work.chosen)
        self._full = NetworkLearner(work.fresh(work.chosen))
        self._supernet = Supernet(work.fresh(work.chosen), work.space).eval()
        batches = fixed_batches(_images(work, BATCHES * scored), scored, _NORMALISER, device=work.device)
        self._evaluator = SupernetEvaluator(self._logits, batches)
        self.trained = epochs * len(images)

    def _logits(self, images: torch.Tensor, widths: Widths, side: Side) -> torch.Tensor:
        with autocast(self._work.chosen.precision, images.device):
            logits: torch.Tensor = self._supernet(images, widths, side)
        return logits

    def __call__(self, number: int) -> dict[str, tuple[Call, Call]]:
        """The things of a round."""
        return {
            OURS: (prepare_nothing, lambda: self._train(self._ours)),
            FULL: (prepare_nothing, lambda: self._train(self._full)),
            SCORING: (prepare_nothing, self._score),
        }

    def _train(self, learner: Learner) -> None:
        train(learner, self._batches, self._recipe, seed=next(self._seeds))

    def _score(self) -> None:
        generator = torch.Generator().manual_seed(next(self._seeds))
        for _ in range(CANDIDATES):
            assert np.isfinite(self._evaluator(self._work.space.sample(generator)))


def _images(work: Workload, number: int) -> Images:
    """Random images of ten classes, on the device."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (number, 3, work.pixels, work.pixels), generator=generator, dtype=torch.uint8)
    return Images(pixels, torch.arange(number) % 10).to(work.device)
