"""Charts as Vega-Lite wants them."""

import functools
import json
import re
from collections.abc import Mapping

from altair.vegalite.v6.schema.core import load_schema
from jsonschema import Draft7Validator


def valid(charts: Mapping[str, dict]) -> Mapping[str, dict]:
    """The charts by name, each validated by Vega-Lite's schema."""
    for chart in charts.values():
        _validated(json.dumps(chart))
    return charts


def data_of(page: str) -> dict:
    """What a report gives its charts, which are valid."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    valid(data["charts"])
    return data


@functools.cache  # reports of one run have most of their charts in common
def _validated(chart: str) -> None:
    _schema().validate(json.loads(chart))


@functools.cache
def _schema() -> Draft7Validator:
    return Draft7Validator(load_schema())
