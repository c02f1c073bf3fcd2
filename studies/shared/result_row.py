"""A finished run as a row of a CSV.

    python -m studies.shared.result_row RUN results/cifar10.csv

Accuracies and scores are percent on the test images and on held-out training images; `seconds` adds up all stages.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from studies.shared.provenance import append_row, provenance

NETWORKS = ("original", "uniform", "searched")


def columns(run: Path) -> dict[str, object]:
    """What a run came to, from its `result.json` and `settings.json`."""
    result = json.loads((run / "result.json").read_text())
    settings = json.loads((run / "settings.json").read_text())
    networks = result["networks"]
    return {
        **{f"{name}_top1": round(networks[name]["test"]["top1"], 3) for name in NETWORKS},
        **{f"{name}_macs_ratio": round(networks[name]["macs_ratio"], 4) for name in NETWORKS},
        **{f"{name}_params": networks[name]["params"] for name in NETWORKS},
        "widths": " ".join(map(str, networks["searched"]["widths"])),
        "score": round(result["search"]["score"], 3),
        "fresh_score": round(result["search"]["fresh_score"], 3),
        "evaluations": result["search"]["evaluations"],
        "image_size": settings["options"]["image_size"] or "usual",
        "supernet_epochs": result["epochs"]["supernet"],
        "final_epochs": result["epochs"]["final"],
        "seconds": round(sum(value for value in result["seconds"].values()), 1),
        "threads": result["device"]["threads"],
        "torch": result["versions"]["torch"],
    }


def main() -> None:
    """Append the row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run directory of a finished `bcnet search`")
    parser.add_argument("csv", type=Path, help="file to append to")
    options = parser.parse_args()
    result = json.loads((options.run / "result.json").read_text())
    what = f"--model {result['model']} --data {result['data'].rpartition('/')[2]} --budget {result['budget']['given']}"
    row = {"configuration": what, "seed": result["seed"], **columns(options.run), **provenance(result)}
    append_row(options.csv, row)


if __name__ == "__main__":
    main()
