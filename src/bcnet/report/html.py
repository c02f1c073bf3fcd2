"""Pieces of a page. Whatever is put into them is text unless it is a piece itself, so that no name can be markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup, escape

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


def join(parts: Iterable[Any], between: str = "") -> Markup:
    """The parts one after the other, escaped where they are text."""
    return Markup(between).join(parts)


def paragraph(text: Any, kind: str = "") -> Markup:
    """A paragraph, of a CSS class where one is given."""
    return Markup('<p class="{}">{}</p>').format(kind, text) if kind else Markup("<p>{}</p>").format(text)


def not_yet(text: str) -> Markup:
    """What is missing, and why."""
    return paragraph(text, "missing")


def figure(name: str, label: str, caption: Any, *, tall: bool = False) -> Markup:
    """The place of a chart. `label` says to those who cannot see it what it shows; a `tall` one may be scrolled."""
    return Markup(
        '<figure><div class="chart{}" id="chart-{}" data-chart="{}" role="img" aria-label="{}"></div>'
        "<figcaption>{}</figcaption></figure>"
    ).format(" tall" if tall else "", name, name, label, caption)


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

    def cells(row: Sequence[Any], tag: str) -> Markup:
        """The cells of a row as `tag` says; the first is always a heading."""
        return join(
            Markup("<{0}{2}{3}>{1}</{0}>").format(
                "th" if column == 0 else tag,
                cell,
                Markup(' scope="row"') if column == 0 and tag == "td" else "",
                "" if column < texts else Markup(' class="number"'),
            )
            for column, cell in enumerate(row)
        )

    body = join(
        Markup("<tr{}>{}</tr>").format(Markup(' class="strong"') if number in strong else "", cells(row, "td"))
        for number, row in enumerate(rows)
    )
    foot = Markup("<tfoot><tr>{}</tr></tfoot>").format(cells(total, "td")) if total else ""
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="{0}"><table><caption>{0}</caption>'
        "<thead><tr>{1}</tr></thead><tbody>{2}</tbody>{3}</table></div>"
    ).format(caption, cells(head, "th"), body, foot)


def listing(items: Mapping[str, Any]) -> Markup:
    """Names with their values."""
    return Markup('<dl class="facts">{}</dl>').format(
        join(Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(key, value) for key, value in items.items())
    )


def count(number: float) -> str:
    """A count in at most four characters and a letter: 4.95M, 301M, 96.6k."""
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g}{letter}"
    return f"{number:.3g}"


def capitalised(text: str) -> str:
    """The text with a capital at its start, the rest as it is."""
    return text[:1].upper() + text[1:]


def points(difference: float, digits: int = 2) -> str:
    """A difference, of percentage points for instance, with its sign."""
    return f"{difference:+.{digits}f}".replace("-", MINUS)


__all__ = [
    "MINUS",
    "NONE",
    "Chart",
    "Markup",
    "Section",
    "capitalised",
    "count",
    "escape",
    "figure",
    "join",
    "listing",
    "not_yet",
    "paragraph",
    "points",
    "table",
]
