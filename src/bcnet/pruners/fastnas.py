"""FastNAS of NVIDIA's Model Optimizer: every width of every layer is scored on its own, with all other layers full.

The widths of each layer are those whose score drops by less than a threshold, the smallest one that satisfies the
budget. The order of scores depends on scores only, so a list of known scores replays an interrupted search.

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
from bcnet.pruners.reading import check_installed, narrowest_ratio, read_widths
from bcnet.pytree import Pytree, arguments, call_model
from bcnet.space import Budget, Widths, WidthSpace

_FLOPS = 2  # Model Optimizer's FLOPs per multiply-add


def fastnas_widths(
    model: nn.Module,
    space: WidthSpace,
    budget: Budget,
    example: Pytree,
    *,
    calibration: Callable[[], Iterable[Pytree]],
    score: Callable[[nn.Module], float],
) -> Widths:
    """Return the widths that FastNAS finds for the trained `model` under `budget`, which must limit MACs only.

    Args:
        model: the trained network that `space` was traced from; it is not changed.
        space: its width space; it tries multiples of the units, every twentieth of a layer from the smallest share that
            the space allows.
        budget: the limit.
        example: an input `(1, ...)` of the network.
        calibration: inputs `(batch, ...)` for batch-norm statistics.
        score: returns the score of a pruned network in eval mode; higher is better.

    Raises:
        RecipeError: Model Optimizer, or a package that it needs, is not installed.
        BudgetError: a budget on parameters, or one that it cannot reach.
        ModelError: it cannot prune this network, or prunes dimensions that the space pins at full width.
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
    example: Pytree,
    macs: int,
    narrowest: float,
    calibration: Callable[[], Iterable[Pytree]],
    score: Callable[[nn.Module], float],
) -> nn.Module:
    def calibrate(network: nn.Module) -> None:
        for images in calibration():
            call_model(network, images)

    config = {"score_func": score, "forward_loop": calibrate, "verbose": False}
    args, kwargs = arguments(example)
    dummy: Any = args[0] if len(args) == 1 else args  # the form that Model Optimizer accepts
    if kwargs:
        dummy = (*args, kwargs)
    output = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
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
    """Make Model Optimizer count with torch's own counter, which agrees with the costs of a space.

    Its default, torchprofile, overcounts strided transposed convolutions by the stride squared, and counts
    `padding="same"` as 0.
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
    """Return twice the multiply-adds of a network in eval mode, in `unit`."""
    from torch.utils.flop_counter import FlopCounterMode

    given = dummy_input if isinstance(dummy_input, tuple) else (dummy_input,)
    *args, kwargs = given if isinstance(given[-1], dict) else (*given, {})
    training = network.training
    # The counter does not know fused attention on a CPU.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        network.eval()(*args, **kwargs)
    network.train(training)
    return float(counter.get_total_flops()) / unit


def _any_width(narrowest: float) -> dict[str, Any]:
    """Return FastNAS's rules for every kind of layer, with widths from this share, not only multiples of 32."""
    from modelopt.torch.prune.fastnas import FastNASConfig

    rules: dict[str, Any] = FastNASConfig().model_dump()
    for by_pattern in rules.values():
        for rule in by_pattern.values():
            if isinstance(rule, dict):
                rule.update({key: 1 for key in rule if key.endswith("_divisor")})
                ratios = [key for key in rule if key.endswith("_ratio")]
                rule.update({key: tuple(r for r in rule[key] if r >= narrowest) for key in ratios})
    return rules
