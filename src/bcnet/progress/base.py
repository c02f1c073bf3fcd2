"""Events of a running run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from bcnet.progress.forecast import Planned

if TYPE_CHECKING:
    from bcnet.searchers import Candidate

Advance = Callable[[int, str], None]  # (units done so far, a short status text)


class Reporter:
    """Receives events of stages and notes; the base class ignores them. Subclasses show them."""

    def plan(self, stages: Sequence[Planned]) -> None:
        """Called before the first stage with all stages of the run, including finished ones."""

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Enter a stage of `total` units; call the value as they are done."""
        yield lambda done, detail: None

    def figures(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Called with the figures of one unit of a stage: loss and learning rate of a step, score of a candidate."""

    def evaluation(self, candidate: Candidate, done: int) -> None:
        """Called with each scored candidate and its number."""

    def note(self, text: str) -> None:
        """Called with a remark for the user."""


class Together(Reporter):
    """Forwards all events to several reporters.

    Example: `bcnet.search(..., reporter=bcnet.Together(mine, bcnet.TensorBoard("runs/demo/tensorboard")))`.
    """

    def __init__(self, *reporters: Reporter) -> None:
        self.reporters = reporters

    def plan(self, stages: Sequence[Planned]) -> None:
        """Forward the plan."""
        for reporter in self.reporters:
            reporter.plan(stages)

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Enter the stage in each reporter."""
        with ExitStack() as stack:
            each = [stack.enter_context(reporter.stage(name, total, unit)) for reporter in self.reporters]

            def advance(done: int, detail: str) -> None:
                for tell in each:
                    tell(done, detail)

            yield advance

    def figures(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Forward the figures."""
        for reporter in self.reporters:
            reporter.figures(stage, step, values)

    def evaluation(self, candidate: Candidate, done: int) -> None:
        """Forward the candidate."""
        for reporter in self.reporters:
            reporter.evaluation(candidate, done)

    def note(self, text: str) -> None:
        """Forward the remark."""
        for reporter in self.reporters:
            reporter.note(text)
