"""Events of a run while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from bcnet.progress.forecast import Planned

if TYPE_CHECKING:
    from bcnet.searchers import Candidate

Advance = Callable[[int, str], None]  # (units done so far, a few words on how it goes)


class Reporter:
    """Hears about stages and notes; this one keeps silent. Subclasses show them."""

    def plan(self, stages: Sequence[Planned]) -> None:
        """Hear of the stages of the run before the first one, those that are finished too."""

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Enter a stage of `total` units; the value is to be called as they are done."""
        yield lambda done, detail: None

    def figures(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Hear the numbers of one unit of a stage: loss and learning rate of a step, score of a candidate."""

    def evaluation(self, candidate: Candidate, done: int) -> None:
        """Hear of a candidate that was scored, as the one of number `done`."""

    def note(self, text: str) -> None:
        """Hear something that a person should know."""


class Together(Reporter):
    """Passes all on to several reporters.

    Example: `bcnet.search(..., reporter=bcnet.Together(mine, bcnet.TensorBoard("runs/demo/tensorboard")))`.
    """

    def __init__(self, *reporters: Reporter) -> None:
        self.reporters = reporters

    def plan(self, stages: Sequence[Planned]) -> None:
        """To each of them."""
        for reporter in self.reporters:
            reporter.plan(stages)

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Enter the stage of each."""
        with ExitStack() as stack:
            each = [stack.enter_context(reporter.stage(name, total, unit)) for reporter in self.reporters]

            def advance(done: int, detail: str) -> None:
                for tell in each:
                    tell(done, detail)

            yield advance

    def figures(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """To each of them."""
        for reporter in self.reporters:
            reporter.figures(stage, step, values)

    def evaluation(self, candidate: Candidate, done: int) -> None:
        """To each of them."""
        for reporter in self.reporters:
            reporter.evaluation(candidate, done)

    def note(self, text: str) -> None:
        """To each of them."""
        for reporter in self.reporters:
            reporter.note(text)
