"""A finished run as a row of a CSV.

    python -m studies.shared.result_row RUN results/cifar10.csv

Accuracies and scores are percent on the test images and on held-out training images; `seconds` adds up all stages.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import bcnet
from studies.shared.provenance import append_row, provenance


def columns(run: Path) -> dict[str, object]:
    """What a finished run came to."""
    opened = bcnet.Run.open(run)
    result = opened.result
    assert result is not None, "the run is finished"
    assert result.search is not None, "the run scored candidates"
    return {
        **{f"{name}_top1": round(network.test["top1"], 3) for name, network in result.networks.items()},
        **{f"{name}_macs_ratio": round(network.macs_ratio, 4) for name, network in result.networks.items()},
        **{f"{name}_params": network.params for name, network in result.networks.items()},
        "widths": " ".join(map(str, result.networks["searched"].widths)),
        "score": round(result.search.score, 3),
        "fresh_score": round(result.search.fresh_score, 3),
        "evaluations": result.search.evaluations,
        "image_size": opened.settings.options.image_size or "usual",
        "supernet_epochs": result.epochs["supernet"],
        "final_epochs": result.epochs["final"],
        "seconds": round(sum(result.seconds.values()), 1),
        "threads": result.device.threads,
        "torch": result.versions["torch"],
    }


def main() -> None:
    """Append the row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run directory of a finished `bcnet search`")
    parser.add_argument("csv", type=Path, help="file to append to")
    options = parser.parse_args()
    found = columns(options.run)
    result = bcnet.Run.open(options.run).result
    assert result is not None, "it has columns"
    what = f"--model {result.model} --data {result.data.rpartition('/')[2]} --budget {result.budget.given}"
    row = {"configuration": what, "seed": result.seed, **found, **provenance(result.versions["commit"])}
    append_row(options.csv, row)


if __name__ == "__main__":
    main()
