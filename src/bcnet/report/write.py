"""Write reports of runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch

from bcnet.distributed import is_rank_zero
from bcnet.errors import RunError
from bcnet.export import read_latencies
from bcnet.export.latency import time_networks
from bcnet.files.atomic import write_atomic
from bcnet.run.directory import read_settings
from bcnet.run.finished import FinishedRun
from bcnet.run.workload import ModelLike
from bcnet.space import WidthSpace
from bcnet.train.randomness import own_global_randomness

if TYPE_CHECKING:
    from bcnet.report.evidence import Evidence


class _HasRun(Protocol):
    @property
    def run_dir(self) -> Path: ...


# of the timing at the end of a run
_ROUNDS = 20
_WARMUP = 5
_WIDTH = 640  # pixels of a picture
_Outcome = TypeVar("_Outcome", bound=_HasRun)


def write_report(run: str | os.PathLike[str]) -> Path:
    """Write `report.html` and pictures for a finished or unfinished run; return the page's path.

    Raises:
        RunError: not a run directory, a corrupt file, or a file that cannot be written.
    """
    from bcnet.report.evidence import read_evidence
    from bcnet.report.single import report_page

    evidence = read_evidence(run)
    path = evidence.path / "report.html"
    write_atomic(path, report_page(evidence).encode())
    _write_pictures(evidence)
    return path


def write_comparison(runs: Sequence[str | os.PathLike[str]], path: str | Path) -> Path:
    """Write a page that compares two or more `runs`.

    Raises:
        RunError: no list of runs, one is not a run directory, a file is corrupt, or the page cannot be written.
    """
    from bcnet.report.comparison import comparison_page
    from bcnet.report.evidence import read_evidence

    if isinstance(runs, (str, os.PathLike)) or not runs:
        raise RunError(f"runs must be a list of run directories; got {runs!r}")
    target = Path(path)
    write_atomic(target, comparison_page([read_evidence(run) for run in runs]).encode())
    return target


def finish(outcome: _Outcome, model: ModelLike, space: WidthSpace) -> _Outcome:
    """Time the networks of a finished run against each other, unless done before, and write its report.

    `model` is the model given to the run (a name, a module or a factory), and `space` its width space. With several
    processes, only the first one does it.

    Raises:
        BCNetError: as for `write_report` and `bcnet.export.measure_latency`.
    """
    if is_rank_zero():
        settings = read_settings(outcome.run_dir)
        if not read_latencies(outcome.run_dir):
            device = settings.options.device or "cpu"
            threads = settings.options.threads or 1
            with own_global_randomness(torch.device(device)):  # making a network draws from the user's generators
                finished = FinishedRun.read(outcome.run_dir, model, traced=space)
                time_networks(
                    finished, backend="torch", threads=threads, batch=1, rounds=_ROUNDS, warmup=_WARMUP, device=device
                )
        write_report(outcome.run_dir)
    return outcome


def report_outcome(outcome: _Outcome) -> _Outcome:
    """Write the report and return the outcome; with several processes, only the first one writes.

    Raises:
        RunError: as for `write_report`.
    """
    if is_rank_zero():
        write_report(outcome.run_dir)
    return outcome


def _write_pictures(evidence: Evidence) -> None:
    """Draw the kept ratios as `ratios.svg` and `ratios.png` beside the report, if there are widths to show."""
    if evidence.space is None or evidence.best is None or evidence.uniform is None:
        return
    import vl_convert

    from bcnet.report.layers import ratio_rows, ratios_chart
    from bcnet.report.look import in_light

    drawing = in_light(ratios_chart(ratio_rows(evidence.space, evidence.best, evidence.uniform), evidence.space))
    drawing |= {"width": _WIDTH, "autosize": "pad", "background": "white", "title": evidence.name}
    drawing["config"]["font"] = "Liberation Sans, Arial, sans-serif"
    picture = vl_convert.vegalite_to_svg(drawing)
    write_atomic(evidence.path / "ratios.svg", picture.encode())
    write_atomic(evidence.path / "ratios.png", vl_convert.svg_to_png(picture, scale=2))
