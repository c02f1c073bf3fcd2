"""The stage that learns the prior from the losses of the supernet's steps (spec, section 4)."""

from __future__ import annotations

from typing import Any, ClassVar

from bcnet.prior import Prior, learn_prior
from bcnet.progress.forecast import Planned
from bcnet.run.settings import Settings, in_sections
from bcnet.run.workload import Workload
from bcnet.stages.base import Context, Stage


class PriorStage(Stage):
    """Comes to the prior over widths."""

    name: ClassVar[str] = "prior"
    file: ClassVar[str] = "prior.json"
    needs: ClassVar[tuple[str, ...]] = ("supernet",)
    kind: ClassVar[str] = "prior"

    def applies(self, settings: Settings) -> bool:
        """Where the searcher starts from it."""
        return settings.needs_prior

    def reads(self, settings: Settings) -> frozenset[str]:
        """The supernet's settings, the budget, and its own."""
        return in_sections("supernet", "prior") | {"limits"}

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """One problem to solve, in seconds."""
        return Planned(self.name, 1, "problem", kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Learn it, on one process."""
        space = context.workload.space
        settings = context.settings
        records = context.output("supernet")[1]

        def learnt() -> dict[str, Any]:
            return learn_prior(
                space,
                records.steps,
                records.widths,
                records.losses,
                context.workload.budget,
                keep=settings.keep_records,
                since=settings.records_since,
                effective_widths=settings.effective_widths,
                tightened=settings.tightened,
                seed=settings.seed,
            ).to_dict()

        with context.working(self.name, 1, "problem") as advance:
            document = context.world.on_rank_zero(learnt)
            context.directory.write(self.file, document)
            advance(1, f"{Prior.from_dict(document, space).effective_widths:.1f} effective widths per group")

    def load(self, context: Context) -> Prior:
        """The prior."""
        return Prior.from_dict(context.directory.read(self.file), context.workload.space)
