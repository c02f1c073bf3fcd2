"""Charts as Vega-Lite wants them."""

import json
import re
from collections.abc import Mapping

from altair.vegalite.v6.schema.core import Root


def valid(charts: Mapping[str, dict]) -> Mapping[str, dict]:
    """The charts by name, each validated by Vega-Lite's schema."""
    for chart in charts.values():
        Root.validate(chart)
    return charts


def data_of(page: str) -> dict:
    """What a report gives its charts, which are valid."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    valid(data["charts"])
    return data
