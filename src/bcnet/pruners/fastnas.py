"""FastNAS of NVIDIA's Model Optimizer: every width of every layer is scored alone, all others being full.

The widths of each layer are those whose score falls by less than a threshold; the threshold is the smallest with which
the budget holds. Scores are asked for in an order that depends on the scores alone, so that a list of those already
known replays a search that was stopped.
"""

from __future__ import annotations

import contextlib
import copy
import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bcnet.errors import BudgetError, ModelError
from bcnet.nests import Nest, arguments, call_network
from bcnet.pruners.extras import check_installed
from bcnet.pruners.reading import narrowest_ratio, read_widths
from bcnet.space import Budget, Widths, WidthSpace

_FLOPS = 2  # by Model Optimizer's count of a multiply-add


def fastnas_widths(
    model: nn.Module,
    space: WidthSpace,
    budget: Budget,
    example: Nest,
    *,
    calibration: Callable[[], Iterable[Nest]],
    score: Callable[[nn.Module], float],
) -> Widths:
    """The widths that FastNAS leaves in the trained `model` under `budget`, a limit on MACs alone.

    Args:
        model: the trained network that `space` was traced from; it is not changed.
        space: its width space; any multiples of its units are tried, every twentieth of a layer from the smallest
            share that the space leaves one.
        budget: the limit.
        example: what the network takes, `(1, ...)`.
        calibration: what the network takes, `(batch, ...)`, for the statistics of batch norm.
        score: what a pruned network is worth in eval mode, higher being better.

    Raises:
        RecipeError: Model Optimizer, or what it needs, is not installed.
        BudgetError: a budget on parameters, or one that it cannot reach.
        ModelError: it cannot prune this network, or cuts what the space holds at full width.
    """
    check_installed("fastnas")
    limits = budget.resolve(space.reference)
    if limits.macs is None or limits.params is not None:
        raise BudgetError(f"FastNAS takes a budget of MACs alone; got {budget}: leave the parameters out")
    network = copy.deepcopy(model).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    pruned = _prune(network, example, int(limits.macs), narrowest_ratio(space), calibration, score)
    widths = read_widths(pruned, space)
    if not limits.admits(space.cost(widths)):
        raise BudgetError(
            f"FastNAS found no network under the budget {limits}; the nearest has {space.cost(widths).macs:,} MACs: "
            "raise the budget"
        )
    return widths


def _prune(
    model: nn.Module,
    example: Nest,
    macs: int,
    narrowest: float,
    calibration: Callable[[], Iterable[Nest]],
    score: Callable[[nn.Module], float],
) -> nn.Module:
    def calibrate(network: nn.Module) -> None:
        for images in calibration():
            call_network(network, images)

    config = {"score_func": score, "forward_loop": calibrate, "verbose": False}
    args, kwargs = arguments(example)
    dummy: Any = args[0] if len(args) == 1 else args  # as Model Optimizer takes it
    if kwargs:
        dummy = (*args, kwargs)
    said = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            warnings.simplefilter("ignore")
            import modelopt.torch.prune as prune

            modes = [("fastnas", _any_width(narrowest))]
            with _counted_by_torch():
                pruned, _ = prune.prune(model, modes, {"flops": _FLOPS * macs}, dummy, config)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ModelError(
            f"FastNAS must be able to prune the network; {type(model).__name__} under {macs:,} MACs failed in Model "
            f"Optimizer: {reason}"
        ) from error
    assert isinstance(pruned, nn.Module)
    return pruned


@contextlib.contextmanager
def _counted_by_torch() -> Iterator[None]:
    """Let Model Optimizer count by torch's own counter, which agrees with the costs of a space.

    torchprofile, its own, takes a strided transposed convolution for stride squared times as much as it is, and
    `padding="same"` for nothing.
    """
    from modelopt.torch.nas import algorithms

    before = algorithms.inference_flops
    algorithms.inference_flops = _flops
    try:
        yield
    finally:
        algorithms.inference_flops = before


@torch.no_grad()
def _flops(network: nn.Module, dummy_input: Any, unit: float = 1e6) -> float:
    """Twice the multiply-adds of a network in eval mode, in `unit`."""
    from torch.utils.flop_counter import FlopCounterMode

    given = dummy_input if isinstance(dummy_input, tuple) else (dummy_input,)
    *args, kwargs = given if isinstance(given[-1], dict) else (*given, {})
    training = network.training
    # Of fused attention on a CPU the counter knows nothing.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        network.eval()(*args, **kwargs)
    network.train(training)
    return float(counter.get_total_flops()) / unit


def _any_width(narrowest: float) -> dict[str, Any]:
    """FastNAS's own rules for every kind of layer, with widths from a share on that need be no multiples of 32."""
    from modelopt.torch.prune.fastnas import FastNASConfig

    rules: dict[str, Any] = FastNASConfig().model_dump()
    for by_pattern in rules.values():
        for rule in by_pattern.values():
            if isinstance(rule, dict):
                rule.update({key: 1 for key in rule if key.endswith("_divisor")})
                ratios = [key for key in rule if key.endswith("_ratio")]
                rule.update({key: tuple(r for r in rule[key] if r >= narrowest) for key in ratios})
    return rules
