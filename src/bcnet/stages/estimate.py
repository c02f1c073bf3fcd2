"""Estimate of a run's duration and memory, from a few passes over copies of at most about a second each.

Speed is work (multiply-adds, see `plan`) per second. It is measured once for a supernet step, for the training of one
network and for scoring, on as many images as a short time allows. Several processes are assumed to share the work
without loss. The run is not affected: the passes use a copy of the weights and images without augmentation, and the
global random generators are restored.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from bcnet.display import duration, size, stage_title
from bcnet.latency.calibration import FIRST, MOST
from bcnet.machine.defaults import threads
from bcnet.machine.devices import autocast
from bcnet.machine.memory import Activations, activations, free_bytes, used_bytes
from bcnet.progress.forecast import Planned
from bcnet.pytree import count, slice_batch, tensors
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.space import Side, Widths
from bcnet.stages.calibration import CalibrationStage, latency_of
from bcnet.stages.supernet import supernet_learner
from bcnet.stages.trials import TrialsStage
from bcnet.supernet import Supernet, build
from bcnet.train import Learner, NetworkLearner, Path, Recipe, accumulate_gradients, derived_generator
from bcnet.train.objective import Objective
from bcnet.train.optimizer import STATES
from bcnet.train.randomness import own_global_randomness

_FIRST_IMAGES = 4  # enough for batch norm
_ENOUGH = 0.2  # target duration of a measurement in seconds
_TRAINING_PASS = 3  # forward passes; a backward pass costs two
_RANGE = (0.6, 1.8)  # of the estimate: range of the actual times beside other work


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds of every remaining stage by name, peak memory of the process, and available memory, in bytes.

    `available` is None if the system does not report it. If the run `calibrates` a latency model first, the seconds
    exclude that: depending on the engine, exporting and timing a network takes from a second to half a minute.

    """

    seconds: dict[str, float]
    peak: float
    available: float | None
    calibrates: bool = False

    @property
    def total(self) -> float:
        """Seconds of all stages."""
        return sum(self.seconds.values())

    def lines(self) -> list[str]:
        """Return one line for people, plus lines for a calibration and for insufficient memory."""
        first = {"supernet": "supernet", "evolution": "search", "finalists": "search", "trials": stage_title("trials")}
        parts: dict[str, float] = {}
        for name, seconds in self.seconds.items():
            label = first.get(name, "final")
            parts[label] = parts.get(label, 0.0) + seconds
        times = ", ".join(f"{name} {duration(max(s, 1))}" for name, s in parts.items() if s)
        low, high = (duration(max(factor * self.total, 1)) for factor in _RANGE)
        of = "" if self.available is None else f" of {size(self.available)}"
        lines = [f"Estimate: {low} to {high} ({times}); peak memory about {size(self.peak)}{of}."]
        if self.calibrates:
            lines.append(
                f"Not counted: timing {FIRST} to {MOST} networks first for the latency model; `bcnet calibrate` "
                "does it once for several searches (--latency-model)."
            )
        if self.available is not None and self.peak > self.available:
            lines.append(
                "Insufficient memory: lower batch_size or score_batch_size, close other programs, or take a machine "
                "with more."
            )
        return lines


def estimate(settings: Settings, workload: Workload, stages: Sequence[Planned]) -> Estimate | None:
    """Return the estimate for the stages that are not finished; None if all are."""
    ahead = [stage for stage in stages if not stage.finished and stage.work]
    if not ahead:
        return None
    device = torch.device(settings.options.device or "cpu")
    used = used_bytes(device)
    with own_global_randomness(device):
        measure = _Measure(settings, workload, device)
        speeds = {stage.name: measure.speed(stage) for stage in ahead}
        kept = measure.activations()
    at_once = {TrialsStage.name: settings.options.side_by_side}
    seconds = {
        s.name: s.total * s.work / speeds[s.name] / settings.options.processes / at_once.get(s.name, 1) for s in ahead
    }
    free = free_bytes(device)
    training = _training_bytes(settings, workload, kept) * max(at_once.get(s.name, 1) for s in ahead)
    peak = used + max(training, kept.scoring_bytes(measure.score_batch))
    latency = latency_of(workload.budget)  # None in a preview, where the admissible widths are not known yet
    unmodelled = latency is None or latency.model is None
    calibrates = unmodelled and any(stage.name == CalibrationStage.name and not stage.finished for stage in stages)
    return Estimate(seconds, peak, None if free is None else used + free, calibrates)


class _Measure:
    """Timed passes of a copy of the network, or of the supernet if one is trained, over a few images."""

    def __init__(self, settings: Settings, workload: Workload, device: torch.device) -> None:
        self._settings = settings
        self._subject = workload
        self._device = device
        self._supernet = Supernet(workload.model, workload.space) if settings.method.trains_supernet else None
        if self._supernet is None:
            self._learner: Learner = NetworkLearner(copy.deepcopy(workload.model))
        else:
            self._learner = supernet_learner(self._supernet, settings, workload.source.input)
        self._learner.task = workload.source.task
        self._speeds: dict[str, float] = {}
        self.score_batch = count(workload.validation[0][1])

    def speed(self, stage: Planned) -> float:
        """Return the work per second of a stage."""
        kind = stage.name if stage.name in ("supernet", "evolution", "original", TrialsStage.name) else "narrow"
        if kind not in self._speeds:
            measured = {
                "supernet": self._step,
                "evolution": self._scoring_bytes,
                "original": self._final,
                TrialsStage.name: self._trial,
            }
            self._speeds[kind] = measured.get(kind, self._narrow)()
        return self._speeds[kind]

    def activations(self) -> Activations:
        """Return the bytes of the activations of the full network, the largest path."""
        objective = self._objective(self._settings.supernet_recipe, _FIRST_IMAGES)
        return activations(self._learner.module, lambda: objective((self._full(),))[0], _FIRST_IMAGES)

    def _step(self) -> float:
        terms = self._learner.plan(derived_generator(self._settings.seed, "estimate"))
        work = _TRAINING_PASS * sum(self._macs(path.widths) for term in terms for path in term.paths)
        recipe = self._settings.supernet_recipe
        return self._rate(
            work,
            recipe.batch_size,
            lambda number: accumulate_gradients(terms, self._objective(recipe, number), passes=self._learner.passes),
        )

    def _final(self) -> float:
        return self._rate_of_training(self._learner, self._full())

    def _narrow(self) -> float:
        """Return the speed of a network near the budget; narrow networks compute fewer multiply-adds per second."""
        subject = self._subject
        widths = subject.space.uniform(subject.budget)
        network = build(subject.model, subject.space, widths)
        return self._rate_of_training(NetworkLearner(network, subject.source.task), Path(widths, Side.LEFT))

    def _trial(self) -> float:
        """Return the speed of a network near the budget with a candidate's number of threads."""
        with threads(self._settings.options.candidate_threads):
            return self._narrow()

    def _rate_of_training(self, learner: Learner, path: Path) -> float:
        recipe = self._settings.training
        return self._rate(
            _TRAINING_PASS * self._macs(path.widths),
            recipe.batch_size,
            lambda number: torch.autograd.backward(self._objective(recipe, number, learner)((path,))[0]),
        )

    def _scoring_bytes(self) -> float:
        images = self._subject.validation[0][0]
        precision = self._settings.supernet_recipe.precision
        supernet = self._supernet
        assert supernet is not None, "only its paths are scored"
        widths = self._subject.space.uniform(self._subject.budget)

        def score(number: int) -> None:
            with torch.inference_mode(), autocast(precision, self._device):
                supernet(slice_batch(images, slice(number)), widths, Side.LEFT)

        return self._rate(self._macs(widths), self.score_batch, score)

    def _rate(self, work: float, most: int, run: Callable[[int], object]) -> float:
        """Return the work per second of `run(images)`.

        `work` is that of one image. Runs for about `_ENOUGH` seconds.
        """
        number = min(_FIRST_IMAGES, most)
        run(number)  # warm up
        while True:
            seconds = self._seconds(lambda: run(number))  # noqa: B023 - called at once
            if seconds >= _ENOUGH or number == most:
                return work * number / seconds
            number = min(most, max(2 * number, int(number * _ENOUGH / seconds)))

    def _seconds(self, run: Callable[[], object]) -> float:
        self._wait()
        start = time.perf_counter()
        run()
        self._wait()
        return max(time.perf_counter() - start, 1e-9)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _objective(self, recipe: Recipe, number: int, learner: Learner | None = None) -> Objective:
        x, y = self._subject.validation[0]
        index = torch.arange(number, device=tensors(y)[0].device) % count(y)
        inputs, targets = slice_batch(x, index), slice_batch(y, index)
        return Objective(learner or self._learner, recipe, recipe.precision, inputs, targets)

    def _full(self) -> Path:
        return Path(self._subject.space.full, Side.LEFT)

    def _macs(self, widths: Widths) -> float:
        return float(self._subject.space.cost(widths).macs)


def _training_bytes(settings: Settings, workload: Workload, kept: Activations) -> float:
    """Return the peak bytes of a training: weights, gradients, optimizer state, and activations for the backward pass.

    With several processes each holds the gradients twice, to add them up, and its share of the images.
    """
    weights = sum(parameter.nbytes for parameter in workload.model.parameters())
    recipes = (settings.supernet_recipe, settings.training)
    copies, shares = (2, 1) if settings.options.processes == 1 else (3, settings.options.processes)
    return max(
        (copies + STATES[r.optimizer] + (r.ema is not None) + (r.early_stopping is not None)) * weights
        + kept.training_bytes(math.ceil(r.batch_size / shares / r.accumulate))
        for r in recipes
    )
