"""The report: one self-contained page about a run, or about several side by side.

`search`, `baseline`, `retrain`, `train_supernet` and `evolve` are the pipeline's, with a report at the end; `finish`
times the networks as well.
"""

from bcnet.report.write import (
    baseline,
    evolve,
    finish,
    retrain,
    search,
    train_supernet,
    write_comparison,
    write_report,
)

__all__ = ["baseline", "evolve", "finish", "retrain", "search", "train_supernet", "write_comparison", "write_report"]
