"""The stage of a budget on the arena: the network is converted at three widths, before the first training."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, ClassVar

from bcnet.costs import Arena, ArenaModel, Budget
from bcnet.costs.base import fingerprint
from bcnet.errors import RunError
from bcnet.progress.forecast import Planned
from bcnet.run.directory import ARENA_MODEL, read_arena_model
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.stages.base import Context, Stage
from bcnet.stages.calibration import CalibrationStage, calibrate
from bcnet.tflite.arena import NETWORKS, fit_arena


class ArenaStage(Stage):
    """Comes to the model that predicts arenas."""

    name: ClassVar[str] = "arena"
    file: ClassVar[str] = ARENA_MODEL
    kind: ClassVar[str] = "conversion"

    def applies(self, settings: Settings) -> bool:
        """Return whether the budget limits the arena."""
        return arena_of(settings.budget) is not None

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """See `Stage`: beside the network nothing matters."""
        return ()

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """Three networks."""
        return Planned(self.name, NETWORKS, "networks", kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Convert the networks, unless a model was given."""
        asked = arena_of(context.workload.budget)
        assert asked is not None, "the stage applies"

        def tell(done: int) -> None:
            advance(done, "converted and loaded")

        def document() -> dict[str, Any]:
            workload = context.workload
            model = copy.deepcopy(workload.model).cpu()
            fitted = fit_arena(model, workload.source.example(), space=workload.space, on_converted=tell)
            assert fitted.model is not None
            return {"model": fitted.model.to_dict()}

        if asked.model is not None:
            context.directory.write(self.file, {"model": asked.model.to_dict()})
            return
        with context.work(self.name, NETWORKS, "networks") as advance:
            # One process converts, and the others wait for what it finds.
            context.directory.write(self.file, context.world.on_rank_zero(document))

    def load(self, context: Context) -> ArenaModel:
        """The model."""
        model = read_arena_model(context.directory)
        if model.space != fingerprint(context.workload.space):
            raise RunError(
                f"{context.directory.file(self.file)} predicts another network than this one: start a new run directory"
            )
        return model


MEASURING = (CalibrationStage.name, ArenaStage.name)
"""Stages without which no cost is known."""


def with_models(context: Context) -> Context:
    """The context with a budget whose measures all can be counted."""
    return predict_arena(calibrate(context))


def arena_of(budget: Budget) -> Arena | None:
    """The measure of the arena that a budget limits."""
    return next((measure for measure in budget.limits if isinstance(measure, Arena)), None)


def predict_arena(context: Context) -> Context:
    """The context with a budget whose arena can be counted.

    Raises:
        BudgetError: the budget is below the narrowest network.
    """
    if arena_of(context.workload.budget) is None or ArenaStage.name not in context.names:
        return context
    model: ArenaModel = context.output(ArenaStage.name)
    workload = context.workload.limited_by(context.workload.budget.with_measure(Arena(model)))
    context.reporter.note(
        f"The arena is predicted from the converted network; tflite-micro took just that for {model.checked} networks."
    )
    return dataclasses.replace(context, workload=workload)
