"""Result of `search`, and the stages that `until` selects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from torch import nn

from bcnet.display import table
from bcnet.errors import RecipeError
from bcnet.files.documents import write_plain
from bcnet.measurement import Measurement
from bcnet.prior import Prior
from bcnet.run import names
from bcnet.run.reliability import Reliability
from bcnet.run.result import NETWORKS, RunResult
from bcnet.run.score import gain_text
from bcnet.run.settings import Settings
from bcnet.searchers import SearchResult
from bcnet.space import Widths, WidthSpace
from bcnet.stages.base import Context
from bcnet.stages.plan import stages_of
from bcnet.stages.result import result_of
from bcnet.stages.search import found_by
from bcnet.supernet import Supernet, describe

Until = Literal["prior", "widths", "network"]


@dataclass(frozen=True, repr=False)
class SearchOutcome:
    """Result of `search`. Fields that the run did not reach, because of `until`, are None.

    `network` is the narrow network, trained, in eval mode and of the model's own class. `widths` has one width for each
    group of `space`. `test` holds its figures on the test images. `found` lists all scored candidates and is None if
    the method scores none. `result` is the content of `result.json`, with accuracies in percent. `supernet` and `prior`
    are set if `until="prior"`. It stands for the path of its run, as in `bcnet.export_run(outcome)`.
    """

    run_dir: Path
    space: WidthSpace
    widths: Widths | None = None
    network: nn.Module | None = None
    test: Measurement | None = None
    found: SearchResult | None = None
    result: RunResult | None = None
    supernet: Supernet | None = None
    prior: Prior | None = None

    @property
    def reliability(self) -> Reliability | None:
        """Reliability of the candidate scores: `verdict`, `text` and figures. None if there are no scores."""
        return None if self.result is None else self.result.reliability

    def compare(self) -> str:
        """Return a table of multiply-adds, parameters and test figures: original, Uniform and searched network."""
        if self.result is None:
            return f"The run in {self.run_dir} has no networks to compare yet: call search again without until=."
        metric = self.result.headline
        lines = [f"{'network':<10}{'MACs':>15}{'ratio':>8}{'parameters':>13}  {metric.column}"]
        for name, n in self.result.networks.items():
            value = f"{self.result.value(name):.{metric.digits}f}"
            lines.append(f"{NETWORKS[name]:<10}{n.macs:>15,}{n.macs_ratio:>8.3f}{n.params:>13,}  {value}")
        return "\n".join(lines)

    def __str__(self) -> str:
        gain = "" if self.result is None else f"{gain_text(self.result)}\n"
        return f"{self.compare()}\n{gain}Report: {self.run_dir / 'report.html'}"

    def __fspath__(self) -> str:
        return str(self.run_dir)  # `bcnet.export_run(outcome)` and others take it as the run's path

    __repr__ = __str__  # show the table at a prompt too

    def _repr_html_(self) -> str:
        if self.result is None:
            return table(str(self.run_dir), ("group", "width"), self._widths_rows(), [self.compare()])
        result = self.result
        rows = [
            (NETWORKS[name], n.macs, n.macs_ratio, n.params, result.value(name)) for name, n in result.networks.items()
        ]
        headings = ("network", "MACs", "ratio", "parameters", result.headline.column)
        widths = [(g.name, g.max_width, g.uniform, g.searched) for g in result.groups]
        return table(result.title, headings, rows, [f"Run directory: {self.run_dir}"]) + table(
            "Widths", ("group", "original", "Uniform", "searched"), widths
        )

    def _widths_rows(self) -> list[tuple[str, int]]:
        return [(g.name, w) for g, w in zip(self.space.groups, self.widths or (), strict=False)]


def check_until(until: Until | None) -> None:
    """Raise RecipeError unless `until` is None or the name of a stopping point."""
    if until is not None and until not in get_args(Until):
        raise RecipeError(
            f"until must be one of {', '.join(get_args(Until))}; got {until!r}: leave it out for the whole run"
        )


def stages_until(settings: Settings, until: Until | None) -> tuple[str, ...]:
    """Return the names of the stages to run for `until`; an empty tuple means all stages.

    Raises:
        RecipeError: `until="prior"` with a method that trains no supernet.
    """
    if until is None:
        return ()
    method = settings.method
    finding = [stage if isinstance(stage, str) else stage.name for stage in method.stages()]
    if until == "prior":
        if not method.trains_supernet:
            raise RecipeError(f"until='prior' needs a method with a supernet; got {method.name}: give method=BCNet()")
        finding = ["supernet", "prior"]
    trains = until == "network"
    stages = [*finding, *(["searched"] if trains else [])]
    # The original is trained first if anything that `until` asks for depends on it: as a teacher, as the start of
    # candidates, or as the start of a supernet.
    learns = trains and settings.training.distillation is not None and settings.teacher is None
    starts = (trains or method.trains_candidates) and settings.start == "original"
    inherits = method.inherits and settings.start != "pretrained"
    needs = {need for stage in stages_of(settings) if stage.name in finding for need in stage.needs}
    return (*(("original",) if learns or starts or inherits or "original" in needs else ()), *stages)


def run_until(context: Context, until: Until | None) -> SearchOutcome:
    """Run the stages that `until` selects and return the outcome."""
    path = context.directory.path
    space = context.workload.space
    if until == "prior":
        supernet = context.output("supernet")[0]
        prior = context.output("prior") if "prior" in context.names else None
        return SearchOutcome(path, space, supernet=supernet, prior=prior)
    if until is None:
        return _run_all(context)
    found = found_by(context)
    if "reliability" in context.names:
        context.output("reliability")
    if until == "widths":
        return SearchOutcome(path, space, tuple(context.settings.method.widths(context)), found=found)
    trained = context.output("searched")
    return SearchOutcome(path, space, trained.widths, trained.network, trained.test, found)


def _run_all(context: Context) -> SearchOutcome:
    """Run all stages and compare the original, the Uniform and the searched network."""
    for name in context.names:
        context.output(name)
    result = result_of(context)
    directory = context.directory
    searched = context.output("searched")
    workload = context.workload
    described = describe(workload.original, workload.space, searched.widths, reference=context.settings.model)
    context.world.on_rank_zero(lambda: write_plain(directory.file(names.ARCHITECTURE), described))
    directory.write(names.RESULT, result.to_document())
    return SearchOutcome(
        directory.path,
        workload.space,
        searched.widths,
        searched.network,
        searched.test,
        found_by(context),
        result,
    )
