"""Times of narrow networks on an engine, as columns of a study's rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

from torch import Tensor, nn

from bcnet.latency import engine_of, engine_times, measure_networks
from bcnet.space import Widths, WidthSpace
from bcnet.supernet import build

_Key = TypeVar("_Key", bound=Hashable)


def timed_columns(
    model: nn.Module, space: WidthSpace, chosen: Mapping[_Key, Widths], inputs: Tensor, engine: str, rounds: int
) -> Iterator[tuple[_Key, dict[str, object]]]:
    """Time the original and the `chosen` widths in turns on one thread; yield the columns of each of them.

    Raises:
        ExportError: the engine is not installed, or refuses a network.
    """
    runs = engine_of(engine)
    prepared = engine_times(runs, lambda widths: build(model, space, widths), inputs, 1)
    found = measure_networks(prepared, list(dict.fromkeys((space.full, *chosen.values()))), 1, rounds)
    taken = {network.widths: network for network in found}
    for key, widths in chosen.items():
        yield (
            key,
            {
                "version": runs.version,
                "widths": " ".join(map(str, widths)),
                "macs_ratio": round(space.cost(widths).macs / space.reference.macs, 4),
                "milliseconds": round(taken[widths].nanoseconds / 1e6, 5),
                "share_of_original": round(taken[widths].nanoseconds / taken[space.full].nanoseconds, 4),
                "noise": round(taken[widths].noise, 4),
                "rounds": rounds,
            },
        )
