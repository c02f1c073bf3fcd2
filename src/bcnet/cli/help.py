"""`bcnet help`: pages of the documentation in the terminal."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from bcnet.cli.endings import guard, refuse

HELP = """
Show a page of the documentation, or list the pages.

Examples:

  bcnet help

  bcnet help budgets

  bcnet help methods
"""
TOPICS = (
    *("how_to", "how_it_works", "when_not", "own_model", "own_data", "only_weights", "budgets", "tasks"),
    *("microcontroller", "phone", "multiples"),
    *("trained", "own_loop", "stages", "baselines", "distributed", "live", "report", "trouble"),
    *("survival", "extending", "faq"),
)
METHODS = "methods"
"""Page generated from the methods."""
_WIDTH = 100  # longest readable line, in characters


@guard
def help_(topic: Annotated[str | None, typer.Argument(help="Name of a page (default: list them).")] = None) -> None:
    """Show a page; the help is `HELP`."""
    pages = {METHODS: "# Methods"}
    pages |= {name: (_folder() / f"{name}.md").read_text(encoding="utf-8") for name in TOPICS}
    console = Console()
    console.width = min(console.width, _WIDTH)
    if topic is None:
        _list(console, pages)
        return
    name = topic.strip().lower().replace("-", "_").replace(" ", "_").removesuffix(".md")
    if name not in pages:
        near = difflib.get_close_matches(name, pages, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        refuse(
            f"a topic must be one of {', '.join(pages)}; got {topic!r}{hint} `bcnet COMMAND --help` explains a command"
        )
    if name == METHODS:
        pages[name] = _methods()
    if console.is_terminal:
        os.environ.setdefault("LESS", "-R")  # otherwise it shows colour codes as text
        with console.pager(styles=True):
            console.print(Markdown(pages[name]))
    else:
        typer.echo(pages[name], nl=False)


def _list(console: Console, pages: Mapping[str, str]) -> None:
    longest = max(map(len, pages))
    for name, text in pages.items():
        title = text.partition("\n")[0].lstrip("# ")
        console.print(f"{name:<{longest}}  {title}", highlight=False, markup=False, soft_wrap=True)
    console.print("\nbcnet help TOPIC shows one of them, bcnet COMMAND --help explains a command.", highlight=False)


def _methods() -> str:
    """Return every method with its fields, as Markdown."""
    from bcnet import methods

    page = [
        "# Methods",
        "Search methods: `--method NAME:key=value,key=value` on the command line, `method=Class(key=value)` in Python.",
    ]
    for name, kind in methods.METHODS.items():
        page += [f"## {name}", f"In Python `bcnet.{kind.__name__}`. {inspect.getdoc(kind)}"]
        lines = [
            f"- `{key}`: {' '.join((field.description or '').split())}"
            + ("" if field.is_required() else f" [{_default_text(field.get_default(call_default_factory=True))}]")
            for key, field in kind.model_fields.items()
        ]
        page.append("\n".join(lines) or "It has no fields.")
    return "\n\n".join(page) + "\n"


def _default_text(default: object) -> str:
    return "left open" if default is None or default == {} else str(default)


def _folder() -> Traversable:
    """Return the folder of the pages: in the installed package, or in a checkout."""
    installed = resources.files("bcnet") / "help"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "docs"
