"""Measured latency before and after, as stored by `bcnet latency`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
from markupsafe import Markup

from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, Section, figure, not_yet, paragraph, table
from bcnet.report.look import ORIGINAL, SEARCHED, UNIFORM, colours_of, names_axis, spec, stack_layers, tip

_TITLE = "Latency on this device"
_LABELS = {"original": "original", "uniform": "Uniform", "searched": "searched", "rounded": "searched, rounded"}
_COLOURS = {"original": ORIGINAL, "Uniform": UNIFORM, "searched": SEARCHED, "searched, rounded": "green"}
_BACKENDS = {
    "torch": "PyTorch",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "litert": "LiteRT",
    "litert:int8": "LiteRT int8",
    "executorch": "ExecuTorch",
    "executorch:int8": "ExecuTorch int8",
}


def section(evidence: Evidence) -> Section:
    """Return a table of all measurements, and a chart and table for each device, backend and number of threads."""
    if not evidence.latencies:
        text = "Not measured yet: bcnet latency times the networks of a finished run against each other."
        return Section("latency", _TITLE, not_yet(text), short="Latency")
    body = _where_it_runs(evidence.latencies) if len(evidence.latencies) > 1 else Markup("")
    charts = {}
    for number, measured in enumerate(evidence.latencies):
        name = f"latency-{number}"
        where = _conditions(measured)
        charts[name] = chart(measured)
        caption = "Bars are medians, lines the middle half of the times."
        body += paragraph(where) + figure(name, f"Milliseconds per batch of each network: {where}", caption)
        body += _table(measured, where) + paragraph(measured["verdict"])
    return Section("latency", _TITLE, body, charts, "Latency")


def _where_it_runs(latencies: Sequence[Mapping[str, Any]]) -> Markup:
    """Return one line per measurement: the original's time, and the others' shares of it."""
    names = [name for name in _LABELS if any(name in one["milliseconds"] for one in latencies)]
    rows = []
    for measured in latencies:
        times = {name: time["median"] for name, time in measured["milliseconds"].items()}
        first = times["original"]
        shares = [f"{times[name] / first:.2f}x" if name in times else "" for name in names if name != "original"]
        rows.append((_conditions(measured), f"{first:.3g}", *shares))
    head = ("where", "original (ms)", *(_LABELS[name] for name in names if name != "original"))
    return table(head, rows, "Where it runs: the original's milliseconds, and the others' shares of them")


def _conditions(measured: Mapping[str, Any]) -> str:
    threads = f"{measured['threads']} thread{'s' if measured['threads'] > 1 else ''}"
    backend = _BACKENDS.get(measured["backend"], measured["backend"])
    return f"{backend} on {measured['device']}, {threads}, batches of {measured['batch']}"


def _rows(measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"network": _LABELS.get(name, name), **times, "macs": measured["macs_ratio"][name]}
        for name, times in measured["milliseconds"].items()
    ]


def _table(measured: Mapping[str, Any], where: str) -> Markup:
    first = measured["milliseconds"]["original"]["median"]
    rows = [
        (r["network"], f"{r['median']:.3g}", f"{r['low']:.3g} to {r['high']:.3g}", f"{first / r['median']:.2f}x",
         f"{1 / r['macs']:.2f}x")
        for r in _rows(measured)
    ]  # fmt: skip
    count = measured["milliseconds"]["original"]["count"]
    head = ("network", "median (ms)", "middle half", "faster", "fewer MACs")
    return table(head, rows, f"Milliseconds per batch over {count} rounds, in turns: {where}")


def chart(measured: Mapping[str, Any]) -> Chart:
    """Return medians with quartiles, one row per network."""
    rows = _rows(measured)
    names = [row["network"] for row in rows]
    time: dict[str, Any] = {"title": "milliseconds", "scale": alt.Scale(zero=True)}
    network = names_axis("network", names)
    shade = alt.Color("network:N", scale=colours_of(names, [_COLOURS.get(name, "ink") for name in names]), legend=None)
    tooltip = [
        tip("network"),
        tip("median", "median (ms)", ".4g"),
        tip("low", "lower quartile", ".4g"),
        tip("high", "upper quartile", ".4g"),
        tip("macs", "MACs of original", ".3f"),
    ]
    bars = alt.Chart().mark_bar(height={"band": 0.6})
    bars = bars.encode(x=alt.X("median:Q", **time), y=network, color=shade, tooltip=tooltip)
    quartiles = alt.Chart().mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", **time), x2=alt.X2("high"), y=network)
    return spec(stack_layers(rows, bars, quartiles), "Milliseconds per batch of each network", rows=len(rows))
