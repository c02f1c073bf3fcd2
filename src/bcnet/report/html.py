"""HTML pieces of a page, from the templates in `assets`. Text is escaped; pieces are not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from markupsafe import Markup

MINUS = "\N{MINUS SIGN}"
NONE = "\N{EN DASH}"  # shown for a missing value

Chart = dict[str, Any]  # a Vega-Lite specification


@dataclass(frozen=True)
class Section:
    """A part of the page with its own heading. `charts` are inserted where its body has places for them, by name."""

    name: str
    title: str
    body: Markup
    charts: Mapping[str, Chart] = field(default_factory=dict)
    short: str = ""  # for the table of contents; default: the title


def piece(name: str, *values: Any) -> Markup:
    """Return the piece of this name in `assets/pieces.html.j2`."""
    macro = getattr(_template("pieces.html.j2").module, name)
    return Markup(macro(*values))


def render(template: str, **values: Any) -> str:
    """Render a whole template of `assets`."""
    return str(_template(template).render(**values))


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("bcnet.report", "assets"), autoescape=True, undefined=StrictUndefined
    ).get_template(name)


def page_heading(text: Any) -> Markup:
    """Return the page's heading."""
    return piece("heading", text)


def paragraph(text: Any, kind: str = "") -> Markup:
    """Return a paragraph, optionally with a CSS class."""
    return piece("paragraph", text, kind)


def not_yet(text: str) -> Markup:
    """Return a note on what is missing, and why."""
    return paragraph(text, "missing")


def figure(name: str, label: str, caption: Any, *, tall: bool = False) -> Markup:
    """Return the place of a chart. `label` describes it for screen readers; a `tall` one can be scrolled."""
    return piece("figure", name, label, caption, tall)


def table(
    head: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    caption: str,
    *,
    total: Sequence[Any] = (),
    texts: int = 1,
    strong: Sequence[int] = (),
) -> Markup:
    """Return a table with `texts` text columns followed by number columns; `strong` rows are highlighted."""
    return piece("table", head, list(rows), caption, total, texts, strong)


def definition_list(items: Mapping[str, Any]) -> Markup:
    """Return a definition list."""
    return piece("listing", items.items())


def fold(summary: str, body: Markup) -> Markup:
    """Return a body that is shown when its summary is clicked."""
    return piece("folded", summary, body)


def count(number: float) -> str:
    """Format a count in at most four characters and a letter: 4.95M, 301M, 96.6k."""
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g}{letter}"
    return f"{number:.3g}"


def capitalise(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def points(difference: float, digits: int = 2) -> str:
    """Format a difference, such as percentage points, with its sign."""
    return f"{difference:+.{digits}f}".replace("-", MINUS)
