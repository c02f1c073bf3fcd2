"""Mean and standard error over the seeds of `cifar_table.csv`, as a CSV and a picture beside it."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from studies.shared.provenance import rows

ORDER = (
    *(
        "original",
        "uniform",
        "balanced",
        "random",
        "random, continued",
        "autoslim",
        "unilateral",
        "unilateral by evolution",
        "magnitude",
        "taylor",
        "fastnas",
    ),
    *(
        "ours without prior",
        "ours, paper",
        "ours, on a supernet",
        "ours",
        "ours, whole front",
        "ours, 2.4x epochs",
        "ours, 2.4x epochs, by loss",
        "ours, 2.4x epochs, greedy",
    ),
    *("ours, 4x epochs", "ours, 4x epochs, by loss", "ours, tuned scores", "ours, tuned finalists"),
    *("ours, tuned at the full rate", "ours, 4x epochs, tuned", "ours, 4x epochs, tuned for an epoch"),
    *("ours, small effort", "ours, short trainings anywhere", "ours, medium effort anywhere", "ours, medium effort"),
    "ours, large effort",
)
_ALL = "all trainings"
ALL = f"scratch, {_ALL}"
ALL_FROM_ORIGINAL = f"original, {_ALL}"
_COLOURS = {"1": "tab:grey", "0.5": "tab:blue", "0.25": "tab:orange"}
_MARKERS = {"scratch": "o", "supernet": "s", "original": "D", ALL: "^", ALL_FROM_ORIGINAL: "v"}
_SHIFTS = {"scratch": 0.12, "supernet": -0.24, "original": 0.3, ALL: -0.06, ALL_FROM_ORIGINAL: 0.21}
Row = dict[str, str]
Key = tuple[str, str, str]  # budget, start, method


def summarise(table: Path, configuration: str) -> list[Row]:
    """Write the summary of the rows of one configuration, and draw it."""
    groups: dict[Key, list[Row]] = {}
    for row in rows(table):
        if row["configuration"] == configuration:
            groups.setdefault((row["budget"], row["start"], row["method"]), []).append(row)
    groups |= _all_trainings(groups)
    order = sorted(groups, key=lambda key: (-float(key[0]), key[1], ORDER.index(key[2])))
    summary = [_mean(key, groups, configuration) for key in order]
    target = table.with_name(f"{table.stem}_summary.csv")
    with target.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(summary[0]))
        writer.writeheader()
        writer.writerows(summary)
    draw(summary, target.with_suffix(".svg"))
    return summary


def _all_trainings(groups: Mapping[Key, Sequence[Row]]) -> dict[Key, list[Row]]:
    """Of networks that were trained several times a row for each seed, with the mean of its top-1."""
    found: dict[Key, dict[str, list[Row]]] = {}
    for (budget, start, method), cells in groups.items():
        first, _, _ = start.partition("again")
        first = first.removesuffix(", ") or "scratch"
        seeds = found.setdefault((budget, f"{first}, {_ALL}", method), {})
        for cell in cells:
            seeds.setdefault(cell["seed"], []).append(cell)
    return {
        key: [
            {**first, "top1": str(statistics.mean(float(c["top1"]) for c in (first, *others)))}
            for first, *others in seeds.values()
        ]
        for key, seeds in found.items()
        if any(len(cells) > 1 for cells in seeds.values())
    }


def _mean(key: Key, groups: Mapping[Key, Sequence[Row]], configuration: str) -> Row:
    cells = groups[key]
    top1 = [float(cell["top1"]) for cell in cells]
    error = statistics.stdev(top1) / math.sqrt(len(top1)) if len(top1) > 1 else None
    budget, start, method = key
    return {
        "budget": budget,
        "start": start,
        "method": method,
        "seeds": " ".join(sorted((cell["seed"] for cell in cells), key=int)),
        "top1_mean": f"{statistics.mean(top1):.3f}",
        "top1_standard_error": "" if error is None else f"{error:.3f}",
        **_ahead_of("uniform", key, groups),
        **_ahead_of("balanced", key, groups),
        **_ahead_of("autoslim", key, groups),
        "macs_ratio_mean": f"{statistics.mean(float(cell['macs_ratio']) for cell in cells):.4f}",
        "params_mean": f"{statistics.mean(float(cell['params']) for cell in cells):.0f}",
        "search_minutes_mean": _mean_of("search_minutes", cells, 1),
        "search_trainings_mean": _mean_of("search_trainings", cells, 2),
        "configuration": configuration,
    }


def _mean_of(column: str, cells: Sequence[Row], digits: int) -> str:
    """Of the rows that have it: what is trained again is not searched again."""
    values = [float(cell[column]) for cell in cells if cell[column]]
    return f"{statistics.mean(values):.{digits}f}" if values else ""


def _ahead_of(other: str, key: Key, groups: Mapping[Key, Sequence[Row]]) -> Row:
    """The mean difference in top-1 to another method over the seeds that both have, and its standard error."""
    budget, start, method = key
    theirs = {cell["seed"]: float(cell["top1"]) for cell in groups.get((budget, start, other), ())}
    gains = [float(cell["top1"]) - theirs[cell["seed"]] for cell in groups[key] if cell["seed"] in theirs]
    known = bool(gains) and method != other
    several = known and len(gains) > 1
    return {
        f"ahead_of_{other}": f"{statistics.mean(gains):.3f}" if known else "",
        f"ahead_of_{other}_standard_error": f"{statistics.stdev(gains) / math.sqrt(len(gains)):.3f}" if several else "",
    }


def draw(summary: Sequence[Row], path: Path) -> None:
    """Means with their standard errors, one line for each method."""
    import matplotlib
    from matplotlib.figure import Figure

    methods = [method for method in reversed(ORDER) if any(row["method"] == method for row in summary)]
    picture = Figure(figsize=(8, 0.5 * len(methods) + 2.4), layout="constrained")
    axis = picture.subplots()
    for row in (row for row in summary if row["start"] in _MARKERS):
        shift = _SHIFTS[row["start"]]
        axis.errorbar(
            float(row["top1_mean"]),
            methods.index(row["method"]) + shift,
            xerr=float(row["top1_standard_error"] or 0),
            fmt=_MARKERS[row["start"]],
            color=_COLOURS.get(row["budget"], "tab:green"),
        )
    for budget in dict.fromkeys(row["budget"] for row in summary):
        axis.plot([], [], "o", color=_COLOURS.get(budget, "tab:green"), label=f"{budget} of the MACs")
    axis.plot([], [], "s", color="white", markeredgecolor="black", label="fine-tuned from a supernet")
    axis.plot([], [], "D", color="white", markeredgecolor="black", label="fine-tuned from the original")
    axis.plot([], [], "^", color="white", markeredgecolor="black", label="all trainings from scratch, where several")
    axis.plot([], [], "v", color="white", markeredgecolor="black", label="all trainings from originals, where several")
    axis.set(title="Mean over the seeds, with its standard error", xlabel="test top-1 (%)")
    axis.set_yticks(range(len(methods)), methods)
    axis.grid(axis="x", alpha=0.3)
    picture.legend(loc="outside lower center", ncols=2, fontsize="small")  # over the dots it would hide some
    with matplotlib.rc_context({"svg.hashsalt": "bcnet"}):  # equal rows, equal files
        picture.savefig(path, metadata={"Date": None})
