"""Pictures of the paper's experiments, drawn from the rows of finished cells. One panel for each network.

Where a row has the paper's own figure it is drawn as a hollow marker; several seeds are drawn one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from studies.paper.networks import SCALES

Row = Mapping[str, str]
_COLOURS = {
    "original": "black",
    "uniform": "tab:gray",
    "balanced": "tab:brown",
    "random": "tab:olive",
    "autoslim": "tab:green",
    "published": "tab:cyan",
    "bcnet": "tab:blue",
    "bcnet-distilled": "tab:purple",
}
_SEARCHERS = {
    "greedy": ("greedy", "tab:green"),
    "evolution-without-prior": ("evolution, random start", "tab:orange"),
    "evolution": ("evolution, prior", "tab:blue"),
    "prior-only": ("prior alone", "tab:purple"),
}
_PUBLISHED = {"imagenet": "AutoSlim", "cifar10": "BCNet's authors"}  # whose widths
_SUPERNETS = {
    "unilateral": "UA",
    "unilateral-complementary": "UA + complement",
    "bilateral": "BC",
    "complementary": "BC + complement",
}


def accuracy(rows: Sequence[Row], file: Path) -> None:
    """Top-1 over MACs by method (Tables 1, 2, 3, 6 and 8, Fig. 9)."""

    def draw(axis: Any, rows: Sequence[Row]) -> None:
        for method in _values(rows, "method"):
            of_method = sorted((r for r in rows if r["method"] == method), key=lambda r: int(r["macs"]))
            colour = _COLOURS[method]
            style = "*" if method == "original" else "o"
            line = "-" if method.startswith("bcnet") and _one_seed(rows) else ""
            points = [(int(r["macs"]) / 1e6, float(r["top1"])) for r in of_method]
            axis.plot(*zip(*points, strict=True), style + line, color=colour, label=method)
            reported = [(int(r["macs"]) / 1e6, float(r["paper_top1"])) for r in of_method if r["paper_top1"]]
            if reported:
                axis.plot(*zip(*reported, strict=True), style, color=colour, fillstyle="none")
        axis.set(xlabel="million MACs", ylabel="test top-1 (%)")
        axis.legend(fontsize="small")

    _panels(rows, file, draw)


def combinations(rows: Sequence[Row], file: Path) -> None:
    """Top-1 of every supernet with every search (Table 4)."""

    def draw(axis: Any, rows: Sequence[Row]) -> None:
        supernets = [name for name in _SUPERNETS if any(r["strategy"] == name for r in rows)]
        for shift, (searcher, (label, colour)) in zip((-0.15, 0, 0.15), list(_SEARCHERS.items())[:3], strict=True):
            for column, style in (("top1", "full"), ("paper_top1", "none")):
                points = [
                    (float(r[column]), supernets.index(r["strategy"]) + shift)
                    for r in rows
                    if r["searcher"] == searcher and r[column]
                ]
                if points:
                    name = label if style == "full" else None
                    axis.plot(*zip(*points, strict=True), "o", color=colour, fillstyle=style, label=name)
        axis.set_yticks(range(len(supernets)), [_SUPERNETS[name] for name in supernets])
        axis.set(xlabel="test top-1 (%)")
        axis.legend(fontsize="small")

    _panels(rows, file, draw)


def more_effort(rows: Sequence[Row], file: Path) -> None:
    """Top-1 by epochs of the supernet and by candidates (Table 5)."""

    def draw(axis: Any, rows: Sequence[Row]) -> None:
        for colour, candidates in zip(("tab:blue", "tab:orange"), _values(rows, "candidates"), strict=False):
            points = [(int(r["supernet_epochs"]), r) for r in rows if r["candidates"] == candidates]
            _line(axis, points, "top1", label=f"{candidates} candidates", color=colour)
        axis.set(xlabel="epochs of the UA supernet", ylabel="test top-1 (%)")
        axis.legend(fontsize="small")

    _panels(rows, file, draw)


def scores(rows: Sequence[Row], file: Path) -> None:
    """Histogram of the scores of all candidates, and of the first generation alone (Fig. 3)."""

    def draw_first(share: float, title: str) -> Callable[[Any, Sequence[Row]], None]:
        def draw(axis: Any, rows: Sequence[Row]) -> None:
            found = {r["searcher"]: [] for r in rows}
            for row in rows:
                listed = [float(score) for score in row["scores"].split()]
                found[row["searcher"]] += listed[: round(share * len(listed))]
            low, high = (end(end(values) for values in found.values()) for end in (min, max))
            for searcher, values in found.items():
                label, colour = _SEARCHERS[searcher]
                mean = sum(values) / len(values)
                text = f"{label}, mean {mean:.2f}"
                axis.hist(values, bins=30, range=(low, high), alpha=0.5, color=colour, label=text)
                axis.axvline(mean, color=colour, linestyle=":")
            axis.set(xlabel="score on the supernet (validation top-1, %)", ylabel=title)
            axis.legend(fontsize="small", loc="upper left")

        return draw

    generations = SCALES[rows[0]["scale"]].generations
    _panels(rows, file, draw_first(1, "all candidates"), draw_first(1 / generations, "candidates of generation 1"))


def group_sizes(rows: Sequence[Row], file: Path) -> None:
    """Top-1 over K (Fig. 4)."""
    _panels(rows, file, _top1_over("num_choices", "widths per group, K"))


def supernet_epochs(rows: Sequence[Row], file: Path) -> None:
    """Top-1 over the epochs of the supernet (Fig. 8)."""
    _panels(rows, file, _top1_over("supernet_epochs", "epochs of the supernet"))


def candidates(rows: Sequence[Row], file: Path) -> None:
    """Top-1, and the best score, after so many candidates (Fig. 6)."""

    def draw_column(column: str, title: str) -> Callable[[Any, Sequence[Row]], None]:
        def draw(axis: Any, rows: Sequence[Row]) -> None:
            for searcher in _values(rows, "searcher"):
                label, colour = _SEARCHERS[searcher]
                points = [(int(r["evaluations"]), r) for r in rows if r["searcher"] == searcher]
                _line(axis, points, column, label=label, color=colour)
            axis.set(xlabel="candidates scored", ylabel=title)
            axis.legend(fontsize="small")

        return draw

    drawings = (draw_column("top1", "test top-1 (%)"), draw_column("score", "best score (validation top-1, %)"))
    _panels(rows, file, *drawings)


def kept(rows: Sequence[Row], file: Path) -> None:
    """Kept over original width of every group, in network order (Figs. 5, 7 and 10); dashed: published widths."""

    def draw(axis: Any, rows: Sequence[Row]) -> None:
        for row in sorted(rows, key=lambda r: -int(r["macs"])):
            widths, original = ([int(w) for w in row[name].split()] for name in ("widths", "original_widths"))
            ratios = [width / whole for width, whole in zip(widths, original, strict=True)]
            source = _PUBLISHED[row["data"]] if row["published"] else "ours"
            line = "--" if row["published"] else "-"
            label = f"{source}, {int(row['macs']) / 1e6:,.1f}M"
            axis.plot(range(1, len(ratios) + 1), ratios, line, marker=".", linewidth=1, label=label)
        axis.set(xlabel="width group, from the input", ylabel="kept over original width", ylim=(0, None))
        axis.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1))

    _panels(rows, file, draw, width=9)


def _top1_over(column: str, title: str) -> Callable[[Any, Sequence[Row]], None]:
    def draw(axis: Any, rows: Sequence[Row]) -> None:
        _line(axis, [(int(r[column]), r) for r in rows], "top1", color="tab:blue")
        axis.set(xlabel=title, ylabel="test top-1 (%)")

    return draw


def _line(axis: Any, points: Iterable[tuple[float, Row]], column: str, **style: Any) -> None:
    """The mean over the seeds as a line, and every seed as a point."""
    by_place: dict[float, list[float]] = {}
    for place, row in points:
        by_place.setdefault(place, []).append(float(row[column]))
    places = sorted(by_place)
    axis.plot(places, [sum(by_place[p]) / len(by_place[p]) for p in places], "-", **style)
    for place in places:
        axis.plot([place] * len(by_place[place]), by_place[place], ".", color=style.get("color"))


def _panels(
    rows: Sequence[Row], file: Path, *drawings: Callable[[Any, Sequence[Row]], None], width: float = 5.5
) -> None:
    """A row of panels for each network, one of every drawing."""
    import matplotlib
    from matplotlib.figure import Figure

    networks = _values(rows, "network")
    size = (width * len(drawings), 3.6 * len(networks))
    with matplotlib.rc_context({"svg.hashsalt": "bcnet"}):  # equal rows, equal files
        picture = Figure(figsize=size, layout="constrained")
        grid = picture.subplots(len(networks), len(drawings), squeeze=False)
        for axes, network in zip(grid, networks, strict=True):
            of_network = [row for row in rows if row["network"] == network]
            for axis, draw in zip(axes, drawings, strict=True):
                draw(axis, of_network)
                axis.set_title(_title(of_network), fontsize="small")
                axis.grid(alpha=0.3)
        picture.savefig(file, metadata={"Date": None})


def _title(rows: Sequence[Row]) -> str:
    """The network, and what was trained where that is something else."""
    row = rows[0]
    seeds = len(_values(rows, "seed"))
    many = f", {seeds} seeds" if seeds > 1 else ""
    trained = "" if row["scale"] == "paper" else f": {row['model']} at the same shares"
    return f"{row['network']}{trained}, on {row['data']} at {row['image_size']} pixels{many}"


def _one_seed(rows: Sequence[Row]) -> bool:
    return len(_values(rows, "seed")) == 1


def _values(rows: Sequence[Row], column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for row in rows))
