"""`bcnet help`: the pages of the documentation in the terminal."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from bcnet.cli.endings import guarded, refuse

HELP = """
Show a page of the documentation, or which pages there are.

Examples:

  bcnet help

  bcnet help budgets
"""
TOPICS = (
    *("how_to", "how_it_works", "when_not", "own_model", "own_data", "budgets", "tasks", "trained", "own_loop"),
    *("stages", "baselines", "distributed", "live", "report", "trouble", "survival", "extending", "faq"),
)
_WIDTH = 100  # characters, beyond which lines are hard to read


@guarded
def help_(topic: Annotated[str | None, typer.Argument(help="Name of a page (default: list them).")] = None) -> None:
    """Show a page; the help is `HELP`."""
    pages = {name: (_folder() / f"{name}.md").read_text(encoding="utf-8") for name in TOPICS}
    console = Console()
    console.width = min(console.width, _WIDTH)
    if topic is None:
        _list(console, pages)
        return
    name = topic.strip().lower().replace("-", "_").replace(" ", "_").removesuffix(".md")
    if name not in pages:
        near = difflib.get_close_matches(name, pages, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        refuse(f"a topic is one of {', '.join(pages)}; got {topic!r}{hint} `bcnet COMMAND --help` explains a command")
    if console.is_terminal:
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


def _folder() -> Traversable:
    """Where the pages are: in the package as it is installed, in the repository as it is checked out."""
    installed = resources.files("bcnet") / "help"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "docs"
