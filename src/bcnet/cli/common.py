"""What every command shares: options, the layout of help pages, and how mistakes end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bcnet.cli.endings import complain as complain
from bcnet.cli.endings import guarded as guarded

SPACE, TRAINING, SEARCH, MACHINE = "Width space", "Training", "Search", "Machine"

NumChoices = Annotated[int, typer.Option(help="Widths each group may take.", rich_help_panel=SPACE)]
MinRatio = Annotated[float, typer.Option(help="Smallest kept ratio of a group.", rich_help_panel=SPACE)]
MultipleOf = Annotated[int, typer.Option(help="Make widths multiples of this, 8 for instance.", rich_help_panel=SPACE)]
Ignore = Annotated[
    list[str] | None,
    typer.Option(help="Layers to hold at full width, by pattern (layer4.*); repeatable.", rich_help_panel=SPACE),
]
Only = Annotated[
    list[str] | None, typer.Option(help="Search only these layers, by pattern; repeatable.", rich_help_panel=SPACE)
]
SupernetWidth = Annotated[
    float,
    typer.Option(help="Widest widths over the model's own; 1.5 to search at 1.0 of its MACs.", rich_help_panel=SPACE),
]
TakeFrom = Annotated[list[Path] | None, typer.Option(help="Another run, what it has finished and shares; repeatable.")]
Layout = Annotated[
    str, typer.Option(help="Of the supernet's weights: auto, contiguous or channels_last.", rich_help_panel=MACHINE)
]
ScoreBatch = Annotated[
    int | None,
    typer.Option(help="Images scored at once (default: 2,048, raced 128, or what fits).", rich_help_panel=MACHINE),
]
EarlyStop = Annotated[
    str,
    typer.Option(help="Score hopeless candidates on a part of the images: auto, on or off.", rich_help_panel=SEARCH),
]
Allocator = Annotated[
    str, typer.Option(help="keep lets glibc keep freed memory, system leaves it alone.", rich_help_panel=MACHINE)
]
Primitives = Annotated[
    int | None,
    typer.Option("--primitive-cache", help="Compiled operators that oneDNN keeps.", rich_help_panel=MACHINE, min=0),
]
ImageSize = Annotated[int | None, typer.Option(help="Pixels, where not the model's usual ones.")]


def prepare_process(allocator: str, primitives: int | None) -> None:
    """Set up what belongs to the whole process; before torch computes anything.

    Raises:
        RecipeError: an unknown allocator.
    """
    from bcnet.errors import RecipeError
    from bcnet.pipeline.allocator import keep_memory
    from bcnet.pipeline.machine import keep_primitives

    if allocator not in ("keep", "system"):
        raise RecipeError(f"--allocator is keep or system; got {allocator!r}")
    if allocator == "keep":
        keep_memory()
    keep_primitives(primitives)


def page(text: str) -> str:
    """Help text with its paragraphs unwrapped, for the terminal to wrap."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
