"""Stage that fits the prior to the losses of the supernet's steps (spec, section 4)."""

from __future__ import annotations

from typing import Any, ClassVar

from bcnet.methods import BCNet
from bcnet.prior import Prior, learn_prior
from bcnet.progress.forecast import Planned
from bcnet.run import names
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.stages.base import Context, Stage
from bcnet.stages.supernet import read_for_supernet


class PriorStage(Stage):
    """Stage of the prior over widths."""

    name: ClassVar[str] = "prior"
    file: ClassVar[str] = names.PRIOR
    needs: ClassVar[tuple[str, ...]] = ("supernet",)
    kind: ClassVar[str] = "prior"

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """Settings of the supernet, the budget, and the prior."""
        own = ("keep_records", "records_since", "effective_widths", "tightened")
        return (*read_for_supernet(settings), *(f"method.{name}" for name in own), "limits")

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """One problem to solve, in seconds."""
        return Planned(self.name, 1, "problem", kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Fit the prior on one process."""
        space = context.workload.space
        settings = context.settings
        method = settings.method
        assert isinstance(method, BCNet), "only BCNet has a prior"
        records = context.output("supernet")[1]

        def learnt() -> dict[str, Any]:
            return learn_prior(
                space,
                records.steps,
                records.widths,
                records.losses,
                context.workload.budget,
                keep=method.keep_records,
                since=method.records_since,
                effective_widths=method.effective_widths,
                tightened=method.tightened,
                seed=settings.seed,
            ).to_dict()

        with context.work(self.name, 1, "problem") as advance:
            document = context.world.on_rank_zero(learnt)
            context.directory.write(self.file, document)
            advance(1, f"{Prior.from_dict(document, space).effective_widths:.1f} effective widths per group")

    def load(self, context: Context) -> Prior:
        """Return the prior."""
        return Prior.from_dict(context.directory.read(self.file), context.workload.space)
