"""Small HTML tables, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_MOST = 60  # rows


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = ()) -> str:
    """A table of plain values as HTML, everything in it escaped; ints get thousands separators, long tables are cut."""
    listed = list(rows)
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in listed[:_MOST])
    cut = [f"{len(listed) - _MOST:,} more rows"] if len(listed) > _MOST else []
    below = "".join(f"<p>{escape(note)}</p>" for note in (*cut, *notes))
    return (
        f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"
    )


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f'<td style="text-align: left">{escape(str(value))}</td>'
    return f"<td>{value:,}</td>" if isinstance(value, int) else f"<td>{value:.4g}</td>"
