"""The stages of a run, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from bcnet.errors import RecipeError
from bcnet.run.settings import Settings
from bcnet.stages.base import Stage, in_order
from bcnet.stages.calibration import CalibrationStage, TimingStage
from bcnet.stages.examples import ExamplesStage
from bcnet.stages.final import OriginalStage, SearchedStage, UniformStage
from bcnet.stages.finalists import FinalistsStage
from bcnet.stages.prior import PriorStage
from bcnet.stages.pruning import PruningStage
from bcnet.stages.reliability import ReliabilityStage
from bcnet.stages.search import EvolutionStage
from bcnet.stages.supernet import SupernetStage
from bcnet.stages.trials import TrialsStage

STAGES: tuple[Stage, ...] = (
    CalibrationStage(),
    SupernetStage(),
    PriorStage(),
    EvolutionStage(),
    TrialsStage(),
    ReliabilityStage(),
    FinalistsStage(),
    PruningStage(),
    OriginalStage(),
    UniformStage(),
    SearchedStage(),
    TimingStage(),
    ExamplesStage(),
)
"""All stages of ours, as they come where nothing they need comes later."""


def stages_of(settings: Settings, own: Sequence[Stage] = ()) -> tuple[Stage, ...]:
    """The stages of a run of these settings in their order, with those of the user's `own`.

    Raises:
        RecipeError: something that is no stage.
        RunError: two stages of one name, or stages that need each other.
    """
    for stage in own:
        if not isinstance(stage, Stage):
            raise RecipeError(f"stages are values of subclasses of bcnet.Stage; got {stage!r}: give Mine(), not Mine")
    return in_order([stage for stage in (*STAGES, *own) if stage.applies(settings)])
