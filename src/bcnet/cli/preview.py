"""`bcnet search --dry-run`: what a run would be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from bcnet.api import Preview

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Show settings, space, and an estimate of time, memory and disk; write nothing."),
]


def show_preview(console: Console, found: Preview) -> None:
    """Every setting, the space in a line, room on the disk, and the estimate."""
    from bcnet.display import size

    table = Table(title="Settings")
    table.add_column("setting")
    table.add_column("value")
    for key, value in found.settings.flat().items():
        table.add_row(escape(key), escape(str(value)))
    console.print(table)
    space = found.space
    lines = [
        f"Space: {len(space.groups)} width groups, {space.reference.macs:,} MACs at full width, "
        f"{space.cost(space.narrowest).macs:,} at the narrowest; {len(space.fixed)} dimensions pinned "
        "(bcnet profile says why).",
        f"Disk: about {size(found.disk)} at most, {size(found.disk_free)} free.",
        *(found.estimate.lines() if found.estimate is not None else ["Every stage of this run is finished."]),
        "Nothing was written.",
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
