"""The demo over five seeds: is the searched network ahead of Uniform on each?

    python -m studies.digits            # seeds 0-4, one after the other, into results/demo_digits.csv
    python -m studies.digits --free     # the same with any number of channels, not the usual multiples
    python -m studies.digits --quick    # one tiny run, to see that everything works; writes nothing

A row per seed; a seed already in the file is not run again. Accuracies are percent on the test digits, `seconds` is the
wall time of the whole command, start to end.
"""

from __future__ import annotations

import argparse
import csv
import functools
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from studies.shared.cells import Cell, run_cells
from studies.shared.provenance import ROOT
from studies.shared.result_row import columns

OUTPUT = ROOT / "results" / "demo_digits.csv"
DEMO = ["--model", "vgg_digits", "--data", "scattered_digits", "--budget", "0.25", "--effort", "small"]
FREE = ["--multiple-of", "1"]
QUICK = ["--epochs", "1", "--effort", "small"]


def main() -> None:
    options = arguments()
    if options.quick:
        print(run(0, [*DEMO, *QUICK], options.threads))
        return
    demo = [*DEMO, *FREE] if options.free else DEMO
    cells = [
        Cell({"configuration": " ".join(demo), "seed": seed}, functools.partial(run, seed, demo, options.threads))
        for seed in range(5)
    ]
    failed = run_cells(cells, OUTPUT, ROOT / "runs" / "logs")
    show(" ".join(demo))
    sys.exit(bool(failed))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one tiny run, nothing written")
    parser.add_argument("--free", action="store_true", help="widths of any number of channels")
    parser.add_argument("--threads", type=int, default=1, help="1 is steadiest for so small a network")
    return parser.parse_args()


def run(seed: int, demo: list[str], threads: int) -> dict[str, object]:
    """One search from the command line, as columns."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bcnet", "search", *demo, "--seed", str(seed), "--threads", str(threads)]
        start = time.monotonic()
        subprocess.run([*command, "--out", folder], check=True, stdout=subprocess.DEVNULL)
        seconds = round(time.monotonic() - start, 1)
        figures = columns(Path(folder))
    return {**figures, "seconds": seconds}


def show(configuration: str) -> None:
    with OUTPUT.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["configuration"] == configuration]
    for name in ("original", "uniform", "searched"):
        top1 = [float(row[f"{name}_top1"]) for row in rows]
        print(f"{name:>9}: mean {statistics.mean(top1):.2f} %, seeds {' '.join(f'{value:.2f}' for value in top1)}")
    print(f"  seconds: {' '.join(row['seconds'] for row in rows)}")


if __name__ == "__main__":
    main()
