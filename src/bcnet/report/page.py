"""The page: sections, styles, charts and the plotting library in one self-contained file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from markupsafe import Markup

from bcnet.report.html import Section, render
from bcnet.report.look import DARK, LIGHT, variables


def page(title: str, top: Markup, sections: Sequence[Section], footer: Any, data: dict[str, Any] | None = None) -> str:
    """Return the page as HTML. `data` is for the page's script."""
    charts = {name: chart for section in sections for name, chart in section.charts.items()}
    return render(
        "page.html.j2",
        title=title,
        style=style(),
        top=top,
        sections=sections,
        footer=footer,
        data=script_json({"charts": charts, **(data or {})}),
        library=plotting_library(),
        script=_asset("report.js"),
    )


def script_json(value: Any) -> str:
    """Return JSON that cannot end a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def plotting_library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, bundled with vl-convert: nothing is downloaded."""
    import vl_convert

    bundle = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    return "{" + bundle.replace("</script", "<\\/script") + "}"


def style() -> str:
    """Return the style sheet with the colours of both themes."""
    light = variables(LIGHT)
    dark = variables(DARK)
    themes = (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
    return themes + _asset("report.css")


def _asset(name: str) -> str:
    return resources.files("bcnet.report").joinpath("assets", name).read_text(encoding="utf-8")
