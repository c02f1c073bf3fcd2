"""Top of the page: what was searched and gained, as a sentence, figures and a table; or the progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from bcnet.costs import Budget
from bcnet.display import duration, score_text, size, stage_title
from bcnet.report.evidence import Evidence
from bcnet.report.html import MINUS, Section, capitalise, count, definition_list, paragraph, piece, points, table
from bcnet.run.result import NETWORKS
from bcnet.run.run import Network
from bcnet.run.score import chance, fresh_score_text, heuristics_text, measured_text, search_cost_text
from bcnet.run.status import StageStatus, read_status
from bcnet.space import WidthSpace


def headline(evidence: Evidence) -> str:
    """Return one sentence on what was searched, and what was gained or found so far."""
    networks = evidence.networks
    start = f"{evidence.name}, {evidence.how}: "
    if evidence.space is None:
        return f"{start}the run has not traced its network yet."
    if evidence.result is None or "searched" not in networks:
        return start + _so_far(evidence)
    searched = networks["searched"]
    original = networks["original"]
    text = (
        f"{_share(searched.cost.macs, original.cost.macs)} of the multiply-adds and "
        f"{_share(searched.cost.params, original.cost.params)} of the parameters, at {_test(searched)} "
        f"against {original.metric.text(original.value)} of the original"
    )
    uniform = networks.get("uniform")
    return start + text + (f" and {uniform.metric.text(uniform.value)} of Uniform narrowing." if uniform else ".")


def _text(network: Network) -> str:
    return network.metric.text(network.value)


def _test(network: Network) -> str:
    """Return the value with its metric: "91.52 % test top-1"."""
    return f"{_text(network)} {network.metric.name}"


def _difference(one: Network, other: Network) -> str:
    return points(one.value - other.value, one.metric.digits)


def _so_far(evidence: Evidence) -> str:
    if not evidence.searches:
        return "unfinished; the network of these widths is not trained yet."
    if not evidence.evaluations:
        return "no candidate has been scored yet."
    best = max(evidence.evaluations, key=lambda c: (evidence.budget.admits(c.cost), c.score))  # type: ignore[union-attr]
    share = _share(best.cost.macs, evidence.space.reference.macs)  # type: ignore[union-attr]
    return (
        f"unfinished; {len(evidence.evaluations):,} candidates scored so far, the best one "
        f"{score_text(best.score, evidence.metric)} at {share} of the multiply-adds."
    )


def tiles(evidence: Evidence) -> Markup:
    """Return the gain as a few large figures; nothing before the searched network is trained."""
    networks = evidence.networks
    if not {"searched", "original"} <= set(networks):
        return Markup("")
    searched = networks["searched"]
    original = networks["original"]
    figures = {
        "multiply-adds": (_change(searched.cost.macs, original.cost.macs), _from_to(original, searched, "macs")),
        "parameters": (_change(searched.cost.params, original.cost.params), _from_to(original, searched, "params")),
        searched.metric.name: (_difference(searched, original), f"{_text(original)} → {_text(searched)}"),
    }
    if "uniform" in networks:
        uniform = networks["uniform"]
        figures["against Uniform"] = (
            _difference(searched, uniform),
            f"{_text(uniform)} at {count(uniform.cost.macs)}",
        )
    return piece("tiles", [(name, *figure) for name, figure in figures.items()])


def results(evidence: Evidence) -> Section:
    """Return the table of the final networks."""
    networks = [evidence.networks[key] for key in NETWORKS if key in evidence.networks]
    if evidence.space is None or not networks:
        missing = "No network has been trained to its end yet: that comes last, after the search."
        return Section("results", "Result", paragraph(missing, "missing"))
    full = evidence.space.reference
    rows = [
        (
            n.label,
            f"{n.cost.macs:,}",
            _share(n.cost.macs, full.macs),
            f"{n.cost.params:,}",
            _share(n.cost.params, full.params),
            *(
                f"{evidence.measures[name].figure(value)} ({_share(value, full[name])})"
                for name, value in n.cost.others.items()
            ),
            f"{n.value:.{n.metric.digits}f}",
            f"{n.low:.{n.metric.digits}f} to {n.high:.{n.metric.digits}f}",
        )
        for n in networks
    ]
    head = (
        "network",
        *(part for name in ("MACs", "parameters") for part in (name, "of original")),
        *networks[0].cost.others,
        networks[0].metric.column,
        "95 % interval",
    )
    strong = [number for number, n in enumerate(networks) if n.label == NETWORKS["searched"]]
    body = table(head, rows, f"Networks {evidence.training_words} by the same recipe", strong=strong)
    text = _explain_trust(evidence) + _explain_metric(evidence.networks, networks[0].images)
    text += _in_bytes(evidence.space, networks) + _selection(evidence)
    note = evidence.settings.space.note
    text += paragraph(note) if note else Markup("")
    if evidence.result is not None and (measured := measured_text(evidence.result)):
        text += paragraph(measured)
    return Section("results", "Result", body + text)


def _explain_trust(evidence: Evidence) -> Markup:
    """Return the trust in the scores that chose the widths."""
    found = None if evidence.result is None else evidence.result.reliability
    if found is None:
        return Markup("")
    return paragraph(found.text, "notice" if found.verdict == "nothing" else "")


def _in_bytes(space: WidthSpace, networks: Sequence[Network]) -> Markup:
    """Return the networks' memory, whatever their budget was."""
    space = space.with_measures(Budget(memory=1.0, size=1.0))
    costs = [(n.label, space.cost(n.widths)) for n in networks]
    held = "; ".join(f"{label} {size(cost['memory'])} and {size(cost['size'])}" for label, cost in costs)
    return paragraph(f"Activations for one input at their peak and weights, both in fp32: {held}.")


def _explain_metric(networks: Mapping[str, Network], images: int) -> Markup:
    metric = next(iter(networks.values())).metric
    better = "higher" if metric.higher else "lower"
    text = f"{capitalise(metric.name)}: {metric.meaning}, of {images:,}, tested once; {better} is better. "
    if {"searched", "uniform"} <= set(networks):
        searched = networks["searched"]
        uniform = networks["uniform"]
        left = chance(*((n.value, n.low, n.high) for n in (searched, uniform)))
        verdict = "more" if abs(searched.value - uniform.value) > left else "not more"
        unit = "points" if metric.unit == "%" else metric.unit
        text += (
            f"The searched network differs from Uniform by {_difference(searched, uniform)} {unit}: {verdict} "
            f"than the {left:.{metric.digits}f} {unit} that chance explains on these images. This is one seed; several "
            "show how much the search itself varies."
        )
    return paragraph(text)


def _selection(evidence: Evidence) -> Markup:
    if evidence.result is None or evidence.result.search is None:
        return Markup("")
    found = evidence.result.search
    heuristics = heuristics_text(found)
    how = "--method balanced --reuse RUN trains the balanced ones."
    beside = paragraph(f"{heuristics}{how}") if heuristics else Markup("")
    if not found.fresh_images:
        score = score_text(found.score, evidence.metric)
        return paragraph(f"The chosen widths scored {score} in the search, {fresh_score_text(found)}.") + beside
    among = f"second, of {len(found.rescored)} networks, less so" if found.finalist_epochs else "second was not"
    return (
        paragraph(
            f"The chosen widths scored {score_text(found.score, evidence.metric)} in the search, and "
            f"{fresh_score_text(found)} on {found.fresh_images:,} training images that took no part in it: the "
            f"first figure was selected for being high, the {among}."
        )
        + beside
    )


def facts(evidence: Evidence) -> Markup:
    """Return the run's facts as a line of names and values."""
    items: dict[str, Any] = {"seed": evidence.settings.seed}
    if evidence.searches:
        items["evaluated"] = f"{len(evidence.evaluations):,} candidates"
    if evidence.space is not None:
        items |= {
            "width groups": len(evidence.space.groups),
            "original": f"{count(evidence.space.reference.macs)} MACs",
        }
    if evidence.seconds:
        items["time"] = duration(sum(evidence.seconds.values()))
        cost = search_cost_text(evidence.seconds)
        if cost and evidence.result is not None:
            items["search"] = cost
    return definition_list(items)


def _share(value: int, whole: int) -> str:
    return f"{value / whole:.1%}".replace("%", " %")


def _change(value: int, before: int) -> str:
    return f"{value / before - 1:+.0%}".replace("-", MINUS).replace("%", " %")


def _from_to(before: Network, after: Network, cost: str) -> str:
    return f"{count(getattr(before.cost, cost))} → {count(getattr(after.cost, cost))}"


_GOING_ON = {"running": "It is running.", "in part": "Everything requested is done; the run can be continued."}


def stage_states(evidence: Evidence) -> Markup:
    """Return the stages with their state; nothing for a finished run."""
    if evidence.result is not None:
        return Markup("")
    status = read_status(evidence.path)
    going = _GOING_ON.get(status.state, "Repeat its command to resume it.")
    return piece(
        "stages",
        f"This run is not finished; the report shows its state so far. {going} {status.message}",
        [(_state_of(stage), stage_title(stage.record.name), _progress_of(stage)) for stage in status.stages],
    )


def _state_of(stage: StageStatus) -> str:
    if stage.state == "finished":
        return "done"
    return "begun" if stage.state == "at hand" or stage.record.done else "ahead"


def _progress_of(stage: StageStatus) -> str:
    record = stage.record
    if stage.state == "finished":
        return "finished"
    if not record.done:
        return "not begun" if stage.state == "ahead" else "begun"
    return f"{record.done:,} of {record.total:,} {record.unit}, {record.detail}".rstrip(", ")
