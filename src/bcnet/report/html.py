"""Pieces of a page, made by the templates in `assets`: what is put into them is text unless it is a piece itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from markupsafe import Markup

MINUS = "\N{MINUS SIGN}"
NONE = "\N{EN DASH}"  # where there is no value

Chart = dict[str, Any]  # a Vega-Lite specification


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading of its own. `charts` are those that its body has places for, by name."""

    name: str
    title: str
    body: Markup
    charts: Mapping[str, Chart] = field(default_factory=dict)
    short: str = ""  # for the list of parts; the title where empty


def piece(name: str, *values: Any) -> Markup:
    """The piece of this name in `assets/pieces.html.j2`."""
    macro = getattr(_template("pieces.html.j2").module, name)
    return Markup(macro(*values))


def render(template: str, **values: Any) -> str:
    """A whole template of `assets`."""
    return str(_template(template).render(**values))


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("bcnet.report", "assets"), autoescape=True, undefined=StrictUndefined
    ).get_template(name)


def page_heading(text: Any) -> Markup:
    """The heading of the page."""
    return piece("heading", text)


def paragraph(text: Any, kind: str = "") -> Markup:
    """A paragraph, of a CSS class where one is given."""
    return piece("paragraph", text, kind)


def not_yet(text: str) -> Markup:
    """Return what is missing, and why."""
    return paragraph(text, "missing")


def figure(name: str, label: str, caption: Any, *, tall: bool = False) -> Markup:
    """The place of a chart. `label` says to those who cannot see it what it shows; a `tall` one may be scrolled."""
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
    """A table whose first `texts` columns are texts and whose others are numbers; `strong` rows stand out."""
    return piece("table", head, list(rows), caption, total, texts, strong)


def definition_list(items: Mapping[str, Any]) -> Markup:
    """Names with their values."""
    return piece("listing", items.items())


def fold(summary: str, body: Markup) -> Markup:
    """Return what is shown when its summary is clicked."""
    return piece("folded", summary, body)


def count(number: float) -> str:
    """A count in at most four characters and a letter: 4.95M, 301M, 96.6k."""
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g}{letter}"
    return f"{number:.3g}"


def capitalise(text: str) -> str:
    """The text with a capital at its start, the rest as it is."""
    return text[:1].upper() + text[1:]


def points(difference: float, digits: int = 2) -> str:
    """A difference, of percentage points for instance, with its sign."""
    return f"{difference:+.{digits}f}".replace("-", MINUS)
