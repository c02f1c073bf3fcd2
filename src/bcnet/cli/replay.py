"""`bcnet replay`: the step that ended a training, run again and looked into."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bcnet.cli.endings import guarded

if TYPE_CHECKING:
    from bcnet.train import PathReplay, Replay

HELP = """
Run the newest step that ended a training in RUN again, and show what went wrong in it.

A loss or a gradient that is not a number, or a loss that explodes, ends a training. The weights before that step, its
widths and its batch are kept in RUN/bad_steps; the data set is not needed. The replay shows the loss of every path, the
first module whose output is not finite, and the largest gradients.

Example:

  bcnet replay runs/demo
"""
_ROWS = 8


@guarded
def replay(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    model: Annotated[
        str | None, typer.Option(help="Where the run was started in Python: package.module:factory for its model.")
    ] = None,
) -> None:
    """Replay a step; the help is `HELP`."""
    from bcnet.stages.replay import replay as run_again

    show(Console(), run_again(run, model))


def show(console: Console, found: Replay) -> None:
    """Tables of the paths and of the gradients, and in a sentence what stands out."""
    failed_step = found.failed_step
    sameness = "the same numbers as in the run" if found.same else "OTHER numbers than in the run: another machine?"
    text = f"Stage {failed_step.stage}, step {failed_step.step}: {failed_step.fault}.\nReplayed with {sameness}."
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    console.print(_paths_table(found.paths))
    console.print(_gradients_table(found))
    console.print(finding(found), highlight=False, markup=False, soft_wrap=True)


def finding(found: Replay) -> str:
    """Where to look first."""
    if found.weights:
        names = f"{', '.join(found.weights[:5])}{' and more' if len(found.weights) > 5 else ''}"
        return f"The weights were no numbers before the step already: {names}."
    broken = next((path for path in found.paths if path.broken is not None), None)
    if broken is not None and not math.isfinite(broken.given):
        return f"The images held what is no finite number: module {broken.broken} was given it."
    if broken is not None:
        return (
            f"The first output that is not finite is that of module {broken.broken}: {broken.share:.1%} of it, of an "
            f"input of at most {broken.given:.4g}; the largest weight is {found.heaviest[1]:.4g}, in "
            f"{found.heaviest[0]}. Where these are large training diverged before: lower lr."
        )
    bad = [name for name, norm in found.gradients.items() if not math.isfinite(norm)]
    if bad:
        return f"All outputs are finite, the gradients of {', '.join(bad[:5])} are not: set clip_norm or look there."
    largest = max(found.paths, key=lambda path: path.peak)
    return f"All numbers are finite; the largest output, {largest.peak:.4g}, is that of module {largest.largest}."


def _paths_table(paths: tuple[PathReplay, ...]) -> Table:
    table = Table(title="Paths")
    for heading, justify in (("side", "left"), ("widths", "left"), ("loss", "right"), ("largest output", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_column("first output that is not finite")
    for path in paths:
        widths = ",".join(map(str, path.path.widths)) or "all"
        largest = f"{path.peak:.4g} {escape(path.largest)}"
        broken = "none" if path.broken is None else f"{escape(path.broken)} ({path.share:.1%} of it)"
        table.add_row(path.path.side.name, widths, f"{path.loss:.4g}", largest, broken)
    return table


def _gradients_table(found: Replay) -> Table:
    table = Table(title=f"Gradients, L2 norm; {found.norm:.4g} together")
    table.add_column("module")
    table.add_column("norm", justify="right")
    ranked = sorted(found.gradients.items(), key=lambda item: (math.isfinite(item[1]), -item[1]))
    for name, norm in ranked[:_ROWS]:
        table.add_row(escape(name), f"{norm:.4g}")
    if len(ranked) > _ROWS:
        table.add_row(f"and {len(ranked) - _ROWS} more", f"at most {ranked[_ROWS][1]:.4g}")
    return table
