"""`report.html`: one self-contained page about a finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bcnet.pipeline.figures import BLUE, GREY, VERMILLION
from bcnet.pipeline.result import skipped_note
from bcnet.pipeline.score import axis_title, fresh_score_text, score_text
from bcnet.searchers import Candidate, SearchResult
from bcnet.space import Widths
from bcnet.train import write_atomic

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .3rem .9rem; text-align: right; }
th:first-child, td:first-child { text-align: left; } thead th { border-bottom: 2px solid #1a1a1a; }
tbody tr { border-bottom: 1px solid #ddd; } tr.searched { font-weight: 600; } svg { max-width: 100%; height: auto; }
figcaption, .small { color: #555; font-size: .875rem; } figure { margin: 1.5rem 0; }
"""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 720, 360, 60, 45, 15, 15


def write_page(folder: Path, document: Mapping[str, Any], found: SearchResult | None) -> None:
    """Write `report.html` beside the pictures of the same folder."""
    picture = (folder / "ratios.svg").read_text(encoding="utf-8")
    write_atomic(folder / "report.html", page(document, found, picture[picture.index("<svg") :]).encode())


def page(document: Mapping[str, Any], found: SearchResult | None, picture: str) -> str:
    """The page as HTML; `picture` is an SVG element. Without a search, `found` None, it says nothing of one."""
    title = f"{document['model']} on {document['data']}"
    searched, original = (document["networks"][name] for name in ("searched", "original"))
    headline = (
        f"{searched['macs_ratio']:.0%} of the multiply-adds, top-1 {searched['test_top1']:.2f} % "
        f"against {original['test_top1']:.2f} % of the original"
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1>
<p>{escape(headline)}</p>
{_networks_table(document)}
<figure role="img" aria-label="Kept ratio of every width group">{picture}
<figcaption>Kept ratio of every width group: original, searched, and Uniform at the same budget.</figcaption></figure>
{"" if found is None else _search_figure(document, found)}
{_groups_table(document)}
{_footer(document)}
</body></html>
"""


def _search_figure(document: Mapping[str, Any], found: SearchResult) -> str:
    trained = tuple(document["networks"]["searched"]["widths"])
    return f"""<figure>{scatter(found.evaluations, found.front, trained, document["search"]["metric"])}
<figcaption>{len(found.evaluations):,} candidates scored by the supernet. The line joins those that no other beats in
both score and multiply-adds; the ring marks the one that was trained.</figcaption></figure>
{_search_paragraph(document)}"""


def scatter(
    evaluations: Sequence[Candidate], front: Sequence[Candidate], trained: Widths, metric: str = "accuracy"
) -> str:
    """Score against MACs of all evaluations as an SVG element, with a ring around those widths that were trained."""
    macs, scores = [c.cost.macs for c in evaluations], [c.score for c in evaluations]
    x_low, x_span = min(macs), max(1, max(macs) - min(macs))
    y_low, y_span = min(scores), max(1e-9, max(scores) - min(scores))

    def place(candidate: Candidate) -> tuple[float, float]:
        x = _LEFT + (candidate.cost.macs - x_low) / x_span * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - (candidate.score - y_low) / y_span * (_HEIGHT - _BOTTOM - _TOP)
        return round(x, 1), round(y, 1)

    dots = "".join(f'<circle cx="{x}" cy="{y}" r="2.2"/>' for x, y in map(place, evaluations))
    line = " ".join(f"{x},{y}" for x, y in map(place, front))
    x, y = place(next(c for c in evaluations if c.widths == trained))
    return f"""<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Score against multiply-adds">
<g fill="{GREY}">{dots}</g><polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="2"/>
<circle cx="{x}" cy="{y}" r="6" fill="none" stroke="{VERMILLION}" stroke-width="2.5"/>
<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" fill="none" stroke="#1a1a1a"/>
<g font-size="12" fill="#1a1a1a"><text x="{_LEFT}" y="{_HEIGHT - 26}">{x_low:,}</text>
<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 26}" text-anchor="end">{x_low + x_span:,}</text>
<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">multiply-adds (MACs)</text>
<text x="{_LEFT - 6}" y="{_HEIGHT - _BOTTOM}" text-anchor="end">{score_text(y_low, metric, unit=False)}</text>
<text x="{_LEFT - 6}" y="{_TOP + 10}" text-anchor="end">{score_text(y_low + y_span, metric, unit=False)}</text>
<text x="14" y="{_HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {_HEIGHT / 2})">{axis_title(metric)}</text>
</g></svg>"""


def _networks_table(document: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr class="{name}"><td>{label}</td><td>{n["macs"]:,}</td><td>{n["macs_ratio"]:.3f}</td>'
        f"<td>{n['params']:,}</td><td>{n['test_top1']:.2f}</td></tr>"
        for name, label, n in table_rows(document)
    )
    head = "<th>network</th><th>MACs</th><th>ratio</th><th>parameters</th><th>test top-1 (%)</th>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def table_rows(document: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Key, label and figures of the networks, in the order in which they are shown."""
    labels = {"original": "original", "uniform": "Uniform", "searched": "searched"}
    return [(name, label, document["networks"][name]) for name, label in labels.items()]


def _search_paragraph(document: Mapping[str, Any]) -> str:
    found = document["search"]
    text = (
        f"The searched widths scored {score_text(found['score'], found['metric'])} in the search, and "
        f"{fresh_score_text(found)} on {found['fresh_images']:,} images that took no part in it."
    )
    return f"<p>{escape(text)}</p>"


def _groups_table(document: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(g['name'])}</td><td>{g['max_width']}</td><td>{g['uniform']}</td><td>{g['searched']}</td></tr>"
        for g in document["groups"]
    )
    head = "<th>group</th><th>original</th><th>Uniform</th><th>searched</th>"
    return f"<h2>Widths</h2><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _footer(document: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    device, total = document["device"], sum(document["seconds"].values())
    text = f"Seed {document['seed']}; {device['name']}, {device['threads']} CPU threads; {total:.0f} s; {versions}."
    text = f"{text} {skipped_note(document)}".rstrip()
    return f'<p class="small">{escape(text)}</p>'
