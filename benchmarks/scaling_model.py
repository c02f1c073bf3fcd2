"""What a run on several GPUs costs, worked out from counts and a few stated assumptions, not measured.

    python -m benchmarks.scaling_model [torchvision:resnet50]

Notation: `N` processes share a batch of `B` images; the four paths of a step have `m` multiply-adds for an image
together (mean over widths drawn as in training), the network has `p` parameters. A forward and backward pass takes 3
times the multiply-adds of the forward pass, 2 operations each; a GPU sustains `F` operations a second, or at least `h`
seconds a step go to launching kernels. All gradients are summed once a step, after the last path, by a ring within
each node and one between nodes (`n` of `g` processes), with `b` and `w` bytes a second and `l` seconds a hop:

    compute(N)  = max(h, 6 m B / (N F))
    reduce(N)   = 2 (g - 1)/g * 4p / b + 2 (n - 1)/n * 4p / w + 2 (g - 1 + n - 1) l
    step(N)     = compute(N) + reduce(N),   speed-up = step(1) / step(N)

Training stops scaling where `compute` has met its floor, at N = 6 m B / (F h), or where `reduce` has outgrown it. Each
generation of a search has `P` candidates, taken one by one by whoever is free; a candidate is scored by two forward
passes over `V` images:

    generation(N) = ceil(P / N) * 2 * 2 c V / F + o,    evaluations per process = ceil(P / N)

with `c` the multiply-adds of a candidate (the budget) and `o` what is not shared: drawing the generation. The search
stops scaling at N = P.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

WORD = 4  # bytes of a gradient


@dataclass(frozen=True)
class Machine:
    """Assumptions about GPUs and links; every figure here follows from them.

    `sustained` operations a second in training and scoring, `launch` seconds that the kernels of a step take at least,
    `within` and `between` bytes a second of the links inside a node and between two, `hop` seconds of latency.
    """

    sustained: float = 60e12
    launch: float = 20e-3
    per_node: int = 8
    within: float = 200e9
    between: float = 25e9
    hop: float = 20e-6
    drawing: float = 0.1


@dataclass(frozen=True)
class Job:
    """A network and how it is searched: multiply-adds of an image, parameters, images."""

    name: str
    macs: int
    params: int
    step_macs: float
    batch: int = 256
    images: int = 1_281_167
    epochs: int = 120
    population: int = 40
    generations: int = 50
    scoring_images: int = 128_117
    budget: float = 0.5


def compute_seconds(job: Job, machine: Machine, processes: int, batch: int) -> float:
    """Forward and backward passes of one step on this process's share of the batch."""
    return max(machine.launch, 6 * job.step_macs * math.ceil(batch / processes) / machine.sustained)


def reduced_bytes(job: Job) -> int:
    """What every process hands in for the sum, and gets back."""
    return WORD * job.params


def reduce_seconds(job: Job, machine: Machine, processes: int) -> float:
    """The sum of all gradients."""
    inside = min(processes, machine.per_node)
    nodes = math.ceil(processes / machine.per_node)
    rings = ((inside, machine.within), (nodes, machine.between))
    transfer = sum(2 * (size - 1) / size * reduced_bytes(job) / speed for size, speed in rings)
    return transfer + 2 * (inside + nodes - 2) * machine.hop


def step_seconds(job: Job, machine: Machine, processes: int, batch: int) -> float:
    """One training step of the supernet."""
    return compute_seconds(job, machine, processes, batch) + reduce_seconds(job, machine, processes)


def floor_processes(job: Job, machine: Machine, batch: int) -> int:
    """Processes beyond which launching kernels takes longer than computing."""
    return int(6 * job.step_macs * batch / (machine.sustained * machine.launch))


def generation_seconds(job: Job, machine: Machine, processes: int) -> float:
    """One generation of the search."""
    candidate = 2 * 2 * job.budget * job.macs * job.scoring_images / machine.sustained
    return math.ceil(job.population / processes) * candidate + machine.drawing


def training_table(job: Job, machine: Machine, batches: tuple[int, ...], counts: tuple[int, ...]) -> list[list[str]]:
    """Rows: batch, processes, images of each, milliseconds of compute and of the sum, speed-up, days of training."""
    rows = []
    for batch in batches:
        alone = step_seconds(job, machine, 1, batch)
        for count in counts:
            seconds = step_seconds(job, machine, count, batch)
            days = seconds * job.epochs * (job.images // batch) / 86400
            rows.append(
                [
                    str(batch),
                    str(count),
                    str(math.ceil(batch / count)),
                    f"{1e3 * compute_seconds(job, machine, count, batch):.1f}",
                    f"{1e3 * reduce_seconds(job, machine, count):.1f}",
                    f"{alone / seconds:.1f}",
                    f"{days:.2f}",
                ]
            )
    return rows


def search_table(job: Job, machine: Machine, counts: tuple[int, ...]) -> list[list[str]]:
    """Rows: processes, evaluations of each per generation and in all, speed-up, hours of the search."""
    alone = generation_seconds(job, machine, 1)
    return [
        [
            str(count),
            str(math.ceil(job.population / count)),
            str(math.ceil(job.population / count) * job.generations),
            f"{alone / generation_seconds(job, machine, count):.1f}",
            f"{generation_seconds(job, machine, count) * job.generations / 3600:.1f}",
        ]
        for count in counts
    ]


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---:"] * len(header), *rows))


def report(job: Job, machine: Machine) -> str:
    """All figures of the docs."""
    ratio = job.step_macs / job.macs
    head = (
        f"{job.name}: {job.params:,} parameters, {reduced_bytes(job) / 1e6:.0f} MB reduced per step; the four paths of "
        f"a step have {ratio:.2f} times the multiply-adds of the full network."
    )
    training = markdown(
        ["batch", "GPUs", "images per GPU", "compute (ms)", "sum (ms)", "speed-up", "supernet (days)"],
        training_table(job, machine, (256, 2048), (1, 8, 64)),
    )
    search = markdown(
        ["GPUs", "evaluations per generation", "in all", "speed-up", "search (hours)"],
        search_table(job, machine, (1, 8, 40, 64)),
    )
    floors = ", ".join(f"{floor_processes(job, machine, b)} GPUs at a batch of {b}" for b in (256, 2048))
    return f"{head}\n\n{training}\n\nKernel launches take over beyond {floors}.\n\n{search}\n"


def counted(name: str, draws: int = 500) -> Job:
    """The counts of a network by its name, as `--model` takes it; widths drawn as in training."""
    import numpy as np
    import torch

    from bcnet.models import create
    from bcnet.space import WidthSpace
    from bcnet.train import Complementary, derived_generator

    spec = create(name)
    space = WidthSpace.trace(spec.build(), torch.zeros(2, *spec.input_size), multiple_of=1)
    generator = derived_generator(0, "scaling model")
    plans = [Complementary().plan(space, generator) for _ in range(draws)]
    paths = np.array([path.widths for plan in plans for term in plan for path in term.paths])
    return Job(name, space.reference.macs, space.reference.params, float(np.sum(space.cost(paths).macs)) / draws)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="torchvision:resnet50")
    options = parser.parse_args()
    if options.model.startswith(("torchvision:", "timm:")):
        from studies.shared.torchvision_here import let_torchvision_import

        let_torchvision_import()
    print(report(counted(options.model), Machine()), end="")


if __name__ == "__main__":
    main()
