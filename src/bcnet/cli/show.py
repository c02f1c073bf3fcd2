"""Tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bcnet.cli.endings import printable
from bcnet.display import size

if TYPE_CHECKING:
    from bcnet.api import SearchOutcome
    from bcnet.costs import Latency
    from bcnet.run.result import RunResult
    from bcnet.space import Widths, WidthSpace

_BAR = 20


def show_result(console: Console, result: RunResult, folder: str) -> None:
    """Show the comparison of the three networks, the kept widths, the gain, and the next steps."""
    from bcnet.costs import measure_called
    from bcnet.run.result import NETWORKS
    from bcnet.run.score import measured_text

    metric = result.headline
    table = Table(title=plain_text(result.title))
    table.add_column("network")
    others = {measure.name: measure for measure in map(measure_called, result.budget.others)}
    for heading in ("MACs", "ratio", "parameters", *others, metric.column):
        table.add_column(plain_text(heading), justify="right")
    for name, figures in result.networks.items():
        table.add_row(
            NETWORKS[name],
            f"{figures.macs:,}",
            f"{figures.macs_ratio:.3f}",
            f"{figures.params:,}",
            *(measure.figure(figures.others[other]) for other, measure in others.items()),
            f"{result.value(name):.{metric.digits}f}",
            style="bold" if name == "searched" else None,
        )
    console.print(table)
    console.print(_widths_table(result))
    for text in (*_conclude(result), measured_text(result), result.training_notes):
        if text:
            console.print(printable(text), highlight=False, markup=False)
    # commands to copy are not wrapped
    next_steps = f"Report: {folder}/report.html   Next: bcnet export {folder}{model_option(result.model)}"
    console.print(next_steps, highlight=False, markup=False, soft_wrap=True)


def _conclude(result: RunResult) -> tuple[str, str]:
    """Return the gain, and the trust in the search or another origin of the widths."""
    from bcnet.run.score import gain_text, search_cost_text, trust_text

    cost = search_cost_text(result.seconds)
    gain = gain_text(result) + (f" The search took {cost}." if cost else "")
    believed = result.reliability
    if believed is not None:
        return gain, trust_text(believed.verdict, of_networks=believed.of_networks)
    return gain, "" if result.search else result.origin_note


def show_outcome(console: Console, outcome: SearchOutcome, folder: str) -> None:
    """Show the outcome of a search: the comparison of its networks, or its progress and how to continue."""
    if outcome.result is not None:
        show_result(console, outcome.result, folder)
        return
    space = outcome.space
    continue_hint = "To continue: the same command without --until."
    if outcome.widths is None:
        summary = f"Trained the supernet of {len(space.groups)} width groups"
        if outcome.prior is not None:
            summary += f", and fitted a prior of {outcome.prior.effective_widths:.1f} effective widths per group"
        console.print(f"{summary}.\n{continue_hint}", highlight=False, markup=False, soft_wrap=True)
        return
    scored = "" if outcome.found is None else f" of {len(outcome.found.evaluations):,} candidates"
    table = Table(title=f"Widths{scored}")
    for heading in ("group", "original", "found"):
        table.add_column(heading, justify="left" if heading == "group" else "right")
    for group, width in zip(space.groups, outcome.widths, strict=True):
        table.add_row(plain_text(group.name), str(group.max_width), str(width))
    console.print(table)
    cost = space.cost(outcome.widths)
    text = f"{cost.macs:,} MACs ({cost.macs / space.reference.macs:.3f} of the original), {cost.params:,} parameters."
    if outcome.test is not None:
        text += f" Test: {', '.join(f'{name} {value:.4g}' for name, value in outcome.test.figures.items())}."
    console.print(f"{text}\n{continue_hint}", highlight=False, markup=False, soft_wrap=True)


def model_option(model: str) -> str:
    """Return the option that a command on a run requires if the run's model is code, which only the user may name."""
    from bcnet.models import imports_code

    return f" --model {model}" if imports_code(model) else ""


def plain_text(text: str) -> Text:
    """Return text without markup and control characters, since names come from untrusted files and models."""
    return Text(printable(text))


def _widths_table(result: RunResult) -> Table:
    table = Table(title="Widths")
    table.add_column("group")
    for heading in ("original", "Uniform", "searched"):
        table.add_column(heading, justify="right")
    table.add_column("kept")
    for group in result.groups:
        kept = round(_BAR * group.searched / group.max_width)
        bar = f"[blue]{'█' * kept}[/blue][bright_black]{'░' * (_BAR - kept)}[/bright_black]"
        table.add_row(plain_text(group.name), str(group.max_width), str(group.uniform), str(group.searched), bar)
    return table


def show_space(
    console: Console, space: WidthSpace, name: str, widths: Widths | None, latency: Latency | None = None
) -> None:
    """Show groups, choices, costs, pinned dimensions and reasons; with a latency model also predictions."""
    table = Table(title=plain_text(f"{name}: {len(space.groups)} width groups"))
    for heading, justify in (("group", "left"), ("width", "right"), ("unit", "right"), ("choices", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    if widths is not None:
        table.add_column("chosen", justify="right")
    for index, group in enumerate(space.groups):
        chosen = [] if widths is None else [str(widths[index])]
        table.add_row(plain_text(group.name), str(group.max_width), str(group.unit), _abridge(group.choices), *chosen)
    console.print(table)
    for line in _ties(space):
        console.print(plain_text(line), soft_wrap=True)
    if space.fixed:
        console.print(_fixed_table(space))
    console.print(_costs_table(space, widths))
    if space.uncounted:
        console.print(space.uncounted_note, highlight=False, markup=False, soft_wrap=True)
    if latency is not None:
        console.print(_latencies(space, widths, latency), highlight=False, markup=False, soft_wrap=True)


def _ties(space: WidthSpace) -> list[str]:
    """Return a line for each group that several layers produce."""
    makers: dict[int, list[str]] = {}
    for layer in space.layers:
        for group in dict.fromkeys(segment.group for segment in layer.out or () if segment.group is not None):
            makers.setdefault(group, []).append(layer.name)
    return [
        f"{space.groups[group].name} has the channels of {len(layers)} layers: {', '.join(layers)}"
        for group, layers in sorted(makers.items())
        if len(layers) > 1
    ]


def _latencies(space: WidthSpace, widths: Widths | None, latency: Latency) -> str:
    import numpy as np

    assert latency.model is not None
    rows = {"original": space.original_widths, "narrowest": space.narrowest, "chosen widths": widths}
    given = {name: row for name, row in rows.items() if row is not None}
    predicted = latency.model.predict(np.array(list(given.values()))).tolist()
    summary = ", ".join(f"{name} {latency.figure(time)}" for name, time in zip(given, predicted, strict=True))
    return f"Latency as predicted for {latency.model.machine}: {summary}."


def _fixed_table(space: WidthSpace) -> Table:
    table = Table(title="Pinned at full width")
    for heading in ("parameter", "dim", "size", "why, and what to do", "where"):
        table.add_column(heading)
    for fixed in space.fixed:
        where = " ".join(part for part in (fixed.operator, fixed.where) if part)
        why = f"{fixed.reason}; {fixed.remedy}" if fixed.remedy else fixed.reason
        table.add_row(plain_text(fixed.name), str(fixed.dim), str(fixed.size), plain_text(why), plain_text(where))
    return table


def _costs_table(space: WidthSpace, widths: Widths | None) -> Table:
    from bcnet.costs import Budget

    table = Table(title="Cost for one input, its activations at their peak and the weights in fp32")
    table.add_column("network")
    for heading in ("MACs", "ratio", "parameters", "activations", "weights"):
        table.add_column(heading, justify="right")
    space = space.with_measures(Budget(memory=1.0, size=1.0))
    rows = {"original": space.original_widths, "narrowest": space.narrowest}
    if widths is not None:
        rows["chosen widths"] = widths
    for label, row in rows.items():
        cost = space.cost(row)
        table.add_row(
            label,
            f"{cost.macs:,}",
            f"{cost.macs / space.reference.macs:.4f}",
            f"{cost.params:,}",
            size(cost["memory"]),
            size(cost["size"]),
        )
    return table


def _abridge(choices: tuple[int, ...]) -> str:
    if len(choices) <= 8:
        return ", ".join(map(str, choices))
    return f"{', '.join(map(str, choices[:4]))}, … {', '.join(map(str, choices[-2:]))} ({len(choices)})"
