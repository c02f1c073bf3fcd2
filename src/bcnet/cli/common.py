"""What every command shares: options, the layout of help pages, and how mistakes end."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, ParamSpec

import typer
from rich.console import Console

from bcnet.errors import BCNetError

_P = ParamSpec("_P")
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
ImageSize = Annotated[int | None, typer.Option(help="Pixels, where not the model's usual ones.")]


def page(text: str) -> str:
    """Help text with its paragraphs unwrapped, for the terminal to wrap."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def guarded(command: Callable[_P, None]) -> Callable[_P, None]:
    """End with one message and code 2 on an error of ours; anything else is a bug and keeps its traceback."""

    @functools.wraps(command)
    def ending_well(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except BCNetError as error:
            complain(f"Error: {error}")
            raise typer.Exit(2) from None

    return ending_well


def complain(text: str) -> None:
    """Say on stderr what is wrong."""
    Console(stderr=True).print(text, style="red", highlight=False, markup=False, soft_wrap=True)
