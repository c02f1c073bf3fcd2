"""Functions of the user's own that hear what a run does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bcnet.progress.base import Advance, Reporter
from bcnet.searchers import Candidate

OnStep = Callable[[str, int, Mapping[str, float]], object]
OnEvaluation = Callable[[Candidate, int], object]
OnStage = Callable[[str, bool], object]


class Callbacks(Reporter):
    """Calls `on_step(stage, step, figures)`, `on_evaluation(candidate, done)` and `on_stage(stage, finished)`.

    `figures` are "loss" and "learning rate" of a training step. `on_stage` is called with False when a stage starts and
    with True when it has ended. What is already done when a run goes on is not told again. What a function raises ends
    the run, which can go on like one that was stopped.

    Example: `bcnet.search(..., callbacks=bcnet.Callbacks(on_evaluation=lambda candidate, done: print(candidate)))`.
    """

    def __init__(
        self,
        *,
        on_step: OnStep | None = None,
        on_evaluation: OnEvaluation | None = None,
        on_stage: OnStage | None = None,
    ) -> None:
        self._on_step = on_step
        self._on_evaluation = on_evaluation
        self._on_stage = on_stage

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Tell `on_stage` of its start, and of its end where it gets there."""
        if self._on_stage is not None:
            self._on_stage(name, False)
        yield lambda done, detail: None
        if self._on_stage is not None:
            self._on_stage(name, True)

    def figures(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Tell `on_step` of a training step."""
        if self._on_step is not None and "loss" in values:
            self._on_step(stage, step, values)

    def evaluation(self, candidate: Candidate, done: int) -> None:
        """Tell `on_evaluation`."""
        if self._on_evaluation is not None:
            self._on_evaluation(candidate, done)
