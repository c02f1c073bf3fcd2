"""Candidates scored on a Dask cluster: ask for widths, spread them over workers, tell their scores.

    python examples/dask_cluster.py runs/dask                            # two processes of this machine
    python examples/dask_cluster.py runs/dask --scheduler tcp://HOST:8786
    python examples/dask_cluster.py runs/try --quick

Scores are kept in `study.sqlite` as they come: stopped at any moment, the same command goes on, and which worker scores
what changes nothing. Needs the package distributed. The network and its training are ordinary PyTorch, to be replaced
by yours.
"""

import argparse
from pathlib import Path

import torch
from distributed import Client, as_completed
from sklearn.datasets import load_digits
from torch import nn

import bcnet

BUDGET = bcnet.Budget(macs=0.25)


def layer(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """A convolution with batch norm and ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


def network() -> nn.Module:
    """The network to narrow."""
    torch.manual_seed(0)
    layers = layer(1, 32), layer(32, 32, 2), layer(32, 64), layer(64, 64, 2)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images `(1797, 1, 8, 8)` and labels, of which the first 1,200 train and the others score."""
    found = load_digits()
    return torch.tensor(found.images, dtype=torch.float32)[:, None] / 16, torch.tensor(found.target)


def train(model: nn.Module, epochs: int) -> nn.Module:
    """Train in place, always in the same order."""
    torch.set_num_threads(1)  # of each worker: there are several
    torch.manual_seed(0)
    x, y = (part[:1200] for part in digits())
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for _ in range(epochs):
        for some in torch.randperm(len(x)).split(60):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[some]), y[some]).backward()
            optimizer.step()
    return model.eval()


def score(weights: dict[str, torch.Tensor], widths: tuple[int, ...], epochs: int) -> float:
    """Minus the held-out loss of a narrow network that starts from the trained one. A worker runs this."""
    original = network()
    original.load_state_dict(weights)
    x, y = digits()
    space = bcnet.trace(original.eval(), x[:2])
    candidate = train(bcnet.narrow(original, space, widths, calibrate=x[:1200].split(60)), epochs)
    with torch.no_grad():
        return -float(nn.functional.cross_entropy(candidate(x[1200:]), y[1200:]))


def search(client: Client, run: Path, networks: int, epochs: int) -> bcnet.WidthSpace:
    """Score `networks` candidates on the workers of `client`, those in the store not again; show the best."""
    run.mkdir(parents=True, exist_ok=True)
    original = train(network(), 4 * epochs)
    space = bcnet.trace(original, digits()[0][:2])
    weights = client.scatter(original.state_dict(), broadcast=True)  # once to every worker
    searcher = bcnet.ModelBased(networks, reach=1.4)
    with bcnet.Study(space, BUDGET, searcher=searcher, store=run / "study.sqlite", settings=f"{epochs}") as study:
        while not study.is_finished:
            asked = {client.submit(score, weights, widths, epochs): widths for widths in study.ask_batch()}
            for done in as_completed(asked):
                study.tell(asked[done], done.result())
                print(f"{len(study.evaluations)} of {networks}: {asked[done]} {done.result():.4f}", flush=True)
        best = study.best
    share = best.cost.macs / space.reference.macs
    print(f"best of {networks}: {best.widths}, {share:.3f}x multiply-adds, score {best.score:.4f}")
    return space


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the study")
    parser.add_argument("--scheduler", help="address of a cluster of yours; two local workers by default")
    parser.add_argument("--quick", action="store_true", help="a few candidates, to see that all runs")
    given = parser.parse_args()
    networks, epochs = (12, 1) if given.quick else (64, 4)
    local = {} if given.scheduler else {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with Client(given.scheduler, **local) as client:
        search(client, given.run, networks, epochs)


if __name__ == "__main__":
    main()
