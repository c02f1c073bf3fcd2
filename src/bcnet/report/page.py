"""The page: sections, styles, charts and the plotting library in one file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from bcnet.report.html import Markup, Section, join
from bcnet.report.look import DARK, LIGHT, variables

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="bcnet">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
<header>{top}</header>
<nav aria-label="Parts of the report"><ul>{links}</ul></nav>
<noscript><p class="missing">The charts need JavaScript; all tables and figures in the text do not.</p></noscript>
<main id="main">{sections}</main>
<footer>{footer}</footer>
<script type="application/json" id="data">{data}</script>
<script>{library}</script>
<script>{script}</script>
</body>
</html>
"""


def page(title: str, top: Markup, sections: Sequence[Section], footer: Any, data: dict[str, Any] | None = None) -> str:
    """The page as HTML. `data` is for the page's script, beside the charts."""
    charts = {name: chart for section in sections for name, chart in section.charts.items()}
    parts = {
        "title": title,
        "style": Markup(_style()),
        "top": top,
        "links": join(Markup('<li><a href="#{}">{}</a></li>').format(s.name, s.short or s.title) for s in sections),
        "sections": join(
            Markup('<section id="{0}" aria-labelledby="{0}-title"><h2 id="{0}-title">{1}</h2>{2}</section>').format(
                s.name, s.title, s.body
            )
            for s in sections
        ),
        "footer": footer,
        "data": Markup(script_json({"charts": charts, **(data or {})})),
        "library": Markup(plotting_library()),
        "script": Markup(_asset("report.js")),
    }
    return str(Markup(_PAGE).format(**parts))


def script_json(value: Any) -> str:
    """JSON that nothing in it can end a script element with."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def plotting_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from vl-convert's own copy: nothing is fetched."""
    import vl_convert

    bundle = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    return "{" + bundle.replace("</script", "<\\/script") + "}"


def _style() -> str:
    light, dark = variables(LIGHT), variables(DARK)
    themes = (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
    return themes + _asset("report.css")


def _asset(name: str) -> str:
    return resources.files("bcnet.report").joinpath("assets", name).read_text(encoding="utf-8")
