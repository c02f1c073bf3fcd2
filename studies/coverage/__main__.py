"""Which networks can be searched, how much of them, and what is pinned at full width and why.

Traces every network of the zoo and writes `docs/coverage.md` and `results/coverage.csv`. Finished networks are rows of
the CSV and are not traced again; delete a row to do it anew.

    python -m studies.coverage [--quick]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import torch
import typer

from bcnet.errors import BCNetError
from bcnet.space import WidthSpace
from studies.coverage.zoo import CNNS, QUICK, TRANSFORMERS, Entry
from studies.shared.provenance import ROOT, append_row, provenance, rows
from studies.shared.torchvision_here import let_torchvision_import

CSV = ROOT / "results" / "coverage.csv"
PAGE = ROOT / "docs" / "coverage.md"
_EXPECTED = ("the network's input", "the network's output", "a single channel")
_HEAD = """# Coverage

What `WidthSpace.trace` finds in each network: the number of width groups, the share of the multiply-adds that depends
on at least one of them, and what is pinned at full width, with the reason. Input channels and class logits are always
pinned and not listed. Written by `python -m studies.coverage`; `make test-networks` checks on all but the last two
that paths equal built networks, gradients included, and that costs equal an independent counter's; `make test-all` on
thirty of them.

"""


def examine(entry: Entry) -> dict[str, object]:
    """One row: what tracing the network gives."""
    started = time.perf_counter()
    try:
        space = WidthSpace.trace(entry.build(), entry.example())
    except BCNetError as error:
        return {
            "network": entry.name,
            "input": entry.size,
            "groups": 0,
            "searchable": 0.0,
            "held": str(error),
            "seconds": 0,
        }
    seconds = time.perf_counter() - started
    held = Counter(f.reason for f in space.fixed if f.reason not in _EXPECTED)
    return {
        "network": entry.name,
        "input": entry.size,
        "groups": len(space.groups),
        "searchable": round(searchable_share(space), 4),
        "held": "; ".join(f"{reason} ({count}x)" if count > 1 else reason for reason, count in held.items()),
        "seconds": round(seconds, 2),
    }


def searchable_share(space: WidthSpace) -> float:
    """Share of the multiply-adds that change with at least one width."""
    return 1 - space.macs_terms.terms.get((), 0) / space.cost(space.full).macs


def write_page(networks: list[dict[str, str]], page: Path) -> None:
    """The table as Markdown, networks with pinned attention last."""
    transformers = {entry.name for entry in TRANSFORMERS}
    shares = [float(row["searchable"]) for row in networks if row["network"] not in transformers]
    summary = (
        f"The first {len(shares)} networks: in the median {statistics.median(shares):.1%} of the multiply-adds can be "
        f"searched; all of them in {sum(share == 1 for share in shares)} networks, at least 95 % in "
        f"{sum(share >= 0.95 for share in shares)}.\n"
    )
    lines = ["| network | input | groups | searchable MACs | pinned at full width |", "|---|---|---|---|---|"]
    for row in sorted(networks, key=lambda row: (row["network"] in transformers, row["network"])):
        held = row["held"].replace("|", "\\|")
        lines.append(
            f"| {row['network']} | {row['input']} | {row['groups']} | {float(row['searchable']):.1%} | {held} |"
        )
    page.write_text(_HEAD + summary + "\n" + "\n".join(lines) + "\n")


def main(quick: Annotated[bool, typer.Option(help="A few networks, nothing written.")] = False) -> None:
    """Trace what is missing, then write the page."""
    let_torchvision_import()
    torch.manual_seed(0)
    if quick:
        for entry in QUICK:
            print(examine(entry))
        return
    for entry in (*CNNS, *TRANSFORMERS):
        done = {row["network"] for row in rows(CSV)}
        if entry.name not in done:
            row = examine(entry)
            append_row(CSV, row | provenance())
            print(row, flush=True)
    write_page(rows(CSV), PAGE)


if __name__ == "__main__":
    sys.exit(typer.run(main))
