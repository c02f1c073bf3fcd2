"""The report: one self-contained page about a run, or about several side by side.

`search`, `retrain`, `train_supernet` and `evolve` are the pipeline's, with a report at the end.
"""

from bcnet.report.write import evolve, retrain, search, train_supernet, write_comparison, write_report

__all__ = ["evolve", "retrain", "search", "train_supernet", "write_comparison", "write_report"]
