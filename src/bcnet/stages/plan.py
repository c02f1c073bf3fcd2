"""Stages of a run in their order."""

from __future__ import annotations

from collections.abc import Sequence

from bcnet.errors import RecipeError
from bcnet.run.settings import Settings
from bcnet.stages.base import Stage, in_order
from bcnet.stages.calibration import CalibrationStage, ConversionStage, TimingStage
from bcnet.stages.examples import ExamplesStage
from bcnet.stages.final import OriginalStage, SearchedStage, UniformStage
from bcnet.stages.finalists import FinalistsStage
from bcnet.stages.pruning import PruningStage
from bcnet.stages.reliability import ReliabilityStage
from bcnet.stages.search import EvolutionStage
from bcnet.stages.supernet import PriorStage, SupernetStage
from bcnet.stages.trials import TrialsStage

_FINDING: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        SupernetStage(),
        PriorStage(),
        EvolutionStage(),
        TrialsStage(),
        ReliabilityStage(),
        FinalistsStage(),
        PruningStage(),
    )
}
"""Stages that find widths, by the names that methods use."""
_FINAL: tuple[Stage, ...] = (OriginalStage(), UniformStage(), SearchedStage(), TimingStage(), ExamplesStage())


def stages_of(settings: Settings, own: Sequence[Stage] = ()) -> tuple[Stage, ...]:
    """Return the stages of a run in order: those of its method, the final networks, and the user's `own`.

    Raises:
        RecipeError: an object that is not a stage.
        RunError: two stages share a name, or stages need each other.
    """
    finding = [_FINDING[stage] if isinstance(stage, str) else stage for stage in settings.method.stages()]
    for stage in (*finding, *own):
        if not isinstance(stage, Stage):
            raise RecipeError(
                f"stages must be values of subclasses of bcnet.Stage; got {stage!r}: give Mine(), not Mine"
            )
    return in_order(
        [s for s in (CalibrationStage(), ConversionStage(), *finding, *_FINAL, *own) if s.applies(settings)]
    )
