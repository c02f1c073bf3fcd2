"""One way to a network of half the multiply-adds, in a process of its own: seconds, and where it lands.

    python -m benchmarks.speed_peer bcnet-search start.safetensors 1

Each way starts from the same trained network and, where it scores, asks for the accuracy on the same images. None
trains: what training a supernet takes, or fine-tuning, comes on top. Channels are divisible by 1 and, where a way has
choices, there are 20 for each group, as `bcnet` has them. The multiply-adds of what comes out are counted by PyTorch's
own counter.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable

import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bcnet.models import resnet20
from benchmarks.speed_turns import now

RATIO = 0.5
CANDIDATES = 200
STEPS = 200  # of an iterative pruner on its way


class Start:
    """A trained ResNet-20 with images `(count, 1, height, width)` to score by, from the tensors of a file."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.images = tensors.pop("images")
        self.labels = tensors.pop("labels")
        self.scored = 0
        self.network: nn.Module = resnet20(in_channels=1)
        self.network.load_state_dict(tensors)

    @torch.no_grad()
    def accuracy(self, network: nn.Module) -> float:
        """Share of right answers; they are counted as `scored`."""
        self.scored += 1
        return float((network(self.images).argmax(dim=1) == self.labels).float().mean())

    def multiply_adds(self, network: nn.Module) -> int:
        """Multiply-adds for one image, counted by PyTorch."""
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network.eval()(self.images[:1])
        return int(counter.get_total_flops()) // 2


def bcnet_search(start: Start) -> nn.Module:
    """Trace, and search with a supernet; both sides of every candidate are scored."""
    from bcnet.searchers import Evolution, SupernetEvaluator, search_widths
    from bcnet.space import Budget, WidthSpace
    from bcnet.supernet import Supernet, build

    space = WidthSpace.trace(start.network, start.images[:2], multiple_of=1)
    evaluator = SupernetEvaluator(Supernet(start.network, space).eval(), [(start.images, start.labels)])
    found = search_widths(space, evaluator, Budget(macs=RATIO), searcher=Evolution(40, CANDIDATES // 40))
    start.scored = len(found.evaluations)
    return build(start.network, space, found.best.widths)


def bcnet_uniform(start: Start) -> nn.Module:
    """Trace, and narrow all layers alike."""
    from bcnet.space import WidthSpace
    from bcnet.supernet import build

    space = WidthSpace.trace(start.network, start.images[:2], multiple_of=1)
    return build(start.network, space, space.uniform(macs=RATIO))


def torch_pruning(start: Start) -> nn.Module:
    """Prune by magnitude, a little in each step, until the budget holds."""
    import torch_pruning as tp

    network = start.network
    example = start.images[:1]
    limit = RATIO * start.multiply_adds(network)
    classifier = [part for part in network.modules() if isinstance(part, nn.Linear)]
    importance = tp.importance.GroupMagnitudeImportance(p=2)
    pruner = tp.pruner.BasePruner(
        network, example, importance, pruning_ratio=0.9, iterative_steps=STEPS, ignored_layers=classifier
    )
    for _ in range(STEPS):
        pruner.step()
        if tp.utils.count_ops_and_params(network, example)[0] <= limit:
            break
    return network


def fastnas(start: Start) -> nn.Module:
    """ModelOpt's FastNAS: the sensitivity of every layer, then a threshold by bisection."""
    import modelopt.torch.prune as mtp

    found, _ = mtp.prune(
        start.network, [("fastnas", _rules())], {"flops": f"{RATIO:.0%}"}, start.images[:1], _scored(start)
    )
    return found


def autonas(start: Start) -> nn.Module:
    """ModelOpt's AutoNAS: an evolution; of its candidates only those within the budget are scored."""
    import modelopt.torch.nas as mtn

    network = mtn.convert(start.network, [("autonas", _rules())])
    config = _scored(start) | {"num_iters": CANDIDATES}
    found, _ = mtn.search(network, {"flops": f"{RATIO:.0%}"}, start.images[:1], config)
    return found


WAYS: dict[str, Callable[[Start], nn.Module]] = {
    "bcnet-search": bcnet_search,
    "bcnet-uniform": bcnet_uniform,
    "torch-pruning": torch_pruning,
    "modelopt-fastnas": fastnas,
    "modelopt-autonas": autonas,
}


def _rules() -> dict[str, object]:
    ratios = tuple(0.05 * i for i in range(1, 21))
    features = {"*": {"features_ratio": ratios, "feature_divisor": 1}}
    convolution = {"*": {"channels_ratio": ratios, "kernel_size": (), "channel_divisor": 1}}
    return {"nn.Conv2d": convolution, "nn.BatchNorm2d": features, "nn.Linear": features}


def _scored(start: Start) -> dict[str, object]:
    """Scores, each after the statistics of batch norm have been found anew on the images."""
    return {
        "score_func": start.accuracy,
        "data_loader": [start.images],
        "collect_func": lambda images: images,
        "max_iter_data_loader": 1,
        "verbose": False,
    }


def main() -> None:
    """Print seconds, ratio of multiply-adds and candidates scored, as JSON."""
    way, file, threads = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(int(threads))
    start = Start(load_file(file))
    full = start.multiply_adds(start.network)
    begun = now()
    found = WAYS[way](start)
    seconds = now() - begun
    print(json.dumps({"seconds": seconds, "ratio": start.multiply_adds(found) / full, "scored": start.scored}))


if __name__ == "__main__":
    main()
