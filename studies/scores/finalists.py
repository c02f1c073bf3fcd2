"""How long must the best candidates be trained before they can be told apart?

For every run of `bcnet search --finalist-epochs E` given, a row for each of its finalists: its score after a short
training, on the images that score all candidates, and after `E` epochs, on fresh ones, with the standard error that
these leave. Runs that agree in all else, of which one takes the trainings of candidates from the other (`--take-from`),
show what `E` changes. No test image is looked at.

    python -m studies.scores.finalists RUN [RUN ...]

writes `results/finalists.csv`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import bcnet
from studies.shared.provenance import ROOT, append_row, finished, provenance

OUT = ROOT / "results" / "finalists.csv"
_INTERVAL = 2 * 1.96  # standard errors across a 95 % interval


def main(
    runs: Annotated[list[Path], typer.Argument(help="Finished runs with --finalist-epochs.")],
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Write the rows that are not there."""
    for place in runs:
        _rows(bcnet.Run.open(place), out)


def _rows(run: bcnet.Run, out: Path) -> None:
    settings = run.settings
    result = run.result
    if result is None or settings.finalist_epochs is None:
        raise typer.BadParameter(f"{run.path} is no finished run with --finalist-epochs")
    search = result["search"]
    heuristics = {tuple(row["widths"]): row["name"] for row in search["heuristics"]}
    chosen = run.networks["searched"].widths
    low, high = search["fresh_interval"]
    for row in search["rescored"]:
        widths = tuple(row["widths"])
        key = {
            "model": settings.model,
            "budget": str(settings.budget),
            "seed": str(settings.seed),
            "start": settings.final_from,
            "first_epochs": str(settings.random_epochs),
            "epochs": str(settings.finalist_epochs),
            "widths": " ".join(map(str, widths)),
        }
        if not finished(out, key):
            figures = {
                "name": heuristics.get(widths, "by the model"),
                "first_score": round(row["score"], 4),
                "score": round(row["fresh_score"], 4),
                "standard_error": round((high - low) / _INTERVAL, 4),  # of the chosen one
                "chosen": widths == chosen,
            }
            append_row(out, {**key, **figures, **provenance()})


if __name__ == "__main__":
    typer.run(main)
