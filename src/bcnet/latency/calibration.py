"""Calibration: a latency model from the times of some tens of whole networks of random widths.

Single layers timed by themselves add up to something else than a network takes, so whole networks are timed, in turns,
of each the low percentile: what the machine does beside them only ever makes them slower. Several forms of the model
are fitted by non-negative least squares on relative errors; the one with the smallest error in cross-validation is
kept. Networks are added until that error no longer falls, or is small.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bcnet.costs import Latency, LatencyModel, Polynomial, Term
from bcnet.errors import BudgetError
from bcnet.files.documents import write_plain
from bcnet.latency.engines import Engine, engine_of
from bcnet.machine.defaults import threads as torch_threads
from bcnet.machine.devices import device_name
from bcnet.machine.timing import Call, Pace, in_turns, nothing
from bcnet.space import LayerTerms, Widths, WidthSpace
from bcnet.supernet import build

if TYPE_CHECKING:
    from bcnet.costs import IntArray

FloatArray = npt.NDArray[np.float64]
Feature = tuple[tuple[int, Polynomial], ...]  # blocks and polynomials that share a coefficient

FIRST, MORE, MOST = 24, 12, 60  # networks
GOOD = 0.02  # a median error that needs no more networks
ROUNDS = 30  # times a network is timed, each of several calls
PERCENTILE = 20
FOLDS = 6
CERTAIN = 0.9  # share of unseen networks that the margin covers
BUSY = 0.1  # noise beyond which the machine is too busy
TRIES = 3
_IN_VAIN = 200  # draws without a network that is new
_ROUND = 4e-3  # seconds of calls between two looks at the clock


@dataclass(frozen=True)
class TimedNetwork:
    """Widths with their latency in nanoseconds.

    `noise` is how far the latencies by every other round lie apart, as a share.
    """

    widths: Widths
    nanoseconds: float
    noise: float

    def to_list(self) -> list[Any]:
        """Plain values, for JSON; `from_list` is the inverse."""
        return [list(self.widths), self.nanoseconds, self.noise]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> TimedNetwork:
        """The network that `to_list` wrote."""
        widths, nanoseconds, noise = values
        return cls(tuple(widths), nanoseconds, noise)


def calibrate(
    model: nn.Module,
    example_input: torch.Tensor,
    *,
    latency: Latency | None = None,
    space: WidthSpace | None = None,
    path: str | Path | None = None,
    seed: int = 0,
    on_measured: Callable[[Sequence[TimedNetwork]], None] = lambda _: None,
) -> Latency:
    """Time networks of random widths on this device, and fit a model that predicts the latency of any widths.

    Args:
        model: the network.
        example_input: what its `forward` takes, `(batch, ...)`.
        latency: engine, threads and batch, `bcnet.costs.Latency("onnxruntime", threads=2)`; PyTorch on one thread
            where nothing is said.
        space: the model's width space, where it is not that of `WidthSpace.trace(model, example_input)`.
        path: a file to keep it in, which `bcnet.costs.read_latency` and `--latency-model` read.
        seed: of the widths.
        on_measured: is told of all networks that are timed so far.

    Returns:
        The measure with its model, for a budget.

    Raises:
        BudgetError: the machine is too busy for times to say anything.
        ExportError: the engine is not installed, or refuses the network.
        TraceError: as `WidthSpace.trace`.

    Example: `Budget({calibrate(resnet, torch.zeros(1, 3, 32, 32)): "2 ms"})`
    """
    asked = latency or Latency()
    traced = space or WidthSpace.trace(model, example_input)
    whole = copy.deepcopy(model).cpu()
    images = example_input[:1].repeat(asked.batch, *(1,) * (example_input.ndim - 1))

    def network(widths: Widths) -> nn.Module:
        return build(whole, traced, widths)

    found, networks = measure_and_fit(traced, network, images, asked, seed=seed, on_measured=on_measured)
    if path is not None:
        document = {"engine": asked.engine, "threads": asked.threads, "batch": asked.batch, "model": found.to_dict()}
        write_plain(Path(path), document | {"measured": [m.to_list() for m in networks]})
    return dataclasses.replace(asked, model=found)


def measure_and_fit(
    space: WidthSpace,
    network: Callable[[Widths], nn.Module],
    images: torch.Tensor,
    latency: Latency,
    *,
    seed: int = 0,
    on_measured: Callable[[Sequence[TimedNetwork]], None] = lambda _: None,
) -> tuple[LatencyModel, list[TimedNetwork]]:
    """Measure networks of `space` and fit a model to their times.

    `network` makes the plain network of given widths, `images` is a batch as the engine gets it. `latency` says which
    engine; its own model is not looked at. `on_measured` is told of all that is measured so far.

    Raises:
        ExportError: the engine is not installed, or refuses a network.
        BudgetError: the machine is too busy for times to say anything.
    """
    engine = engine_of(latency.engine)
    found: list[TimedNetwork] = []
    waiting = draws(space, seed)
    best = np.inf
    times = engine_times(engine, network, images, latency.threads)
    while len(found) < MOST:
        batch = list(islice(waiting, MORE if found else FIRST))
        if not batch:
            break
        found += paced(times, batch, latency.threads, found[0] if found else None)
        on_measured(found)
        model = fitted(space, found, latency)
        if model.error <= GOOD or model.error > 0.9 * best:
            break
        best = model.error
    return model, found


def engine_times(
    engine: Engine, network: Callable[[Widths], nn.Module], images: torch.Tensor, threads: int
) -> Callable[[Widths], Call]:
    """What makes a timed call of widths."""
    return lambda widths: engine.prepared(network(widths).eval(), images, threads)


def measured(prepared: Callable[[Widths], Call], batch: Sequence[Widths], threads: int) -> list[TimedNetwork]:
    """The latency of some networks, timed in turns."""
    with torch_threads(threads):
        calls = {widths: prepared(widths) for widths in batch}
        for call in calls.values():
            call()
        repeats = {widths: _repeats(call) for widths, call in calls.items()}
        # A call that is not timed comes first: a network that is deployed runs again and again, in warm caches.
        arms = {str(n): (calls[w], _repeated(calls[w], repeats[w])) for n, w in enumerate(calls)}
        taken = in_turns(lambda _: arms, Pace.of_rounds(ROUNDS), warmup=1)
    found = []
    for number, widths in enumerate(calls):
        seconds = taken[str(number)] / repeats[widths]
        even, odd = (float(np.percentile(seconds[start::2], PERCENTILE)) for start in (0, 1))
        found.append(TimedNetwork(widths, 1e9 * float(np.percentile(seconds, PERCENTILE)), abs(even / odd - 1)))
    return found


def _repeats(call: Call) -> int:
    """Calls that fill a few milliseconds: a clock and a loop cost microseconds."""
    seconds = float(in_turns(lambda _: {"call": (nothing, call)}, Pace.of_rounds(3), warmup=1)["call"].min())
    return max(1, round(_ROUND / max(seconds, 1e-7)))


def _repeated(call: Call, count: int) -> Call:
    def run() -> None:
        for _ in range(count):
            call()

    return run


def draws(space: WidthSpace, seed: int) -> Iterator[Widths]:
    """Widths to measure, each once: the original and the narrowest, then networks of one ratio with noise around it.

    They end where a small space has hardly any others.
    """
    rng = np.random.default_rng(seed)
    met = dict.fromkeys((space.original_widths, space.narrowest))
    yield from met
    in_vain = 0
    while in_vain < _IN_VAIN:
        ratio = rng.uniform(0.15, 1.0)
        noisy = np.clip(ratio * np.exp(rng.normal(0, 0.35, len(space.groups))), 0.02, 1.0)
        widths = space.floored(noisy * np.array(space.full))
        in_vain += 1
        if widths not in met:
            met[widths], in_vain = None, 0
            yield widths


def paced(
    times: Callable[[Widths], Call], batch: Sequence[Widths], threads: int, known: TimedNetwork | None
) -> list[TimedNetwork]:
    """The latencies of a batch, measured again while the machine is too busy for them to say anything.

    A network that is `known` from before is timed with them, and they are told as if it took what it took then: a
    machine that others share is now faster, now slower, as a whole.

    Raises:
        BudgetError: the machine stays too busy.
    """
    together = dict.fromkeys((*(() if known is None else (known.widths,)), *batch))
    for _ in range(TRIES):
        found = {m.widths: m for m in measured(times, list(together), threads)}
        noise = float(np.median([m.noise for m in found.values()]))
        if noise <= BUSY:
            pace = 1.0 if known is None else known.nanoseconds / found[known.widths].nanoseconds
            return [dataclasses.replace(found[w], nanoseconds=found[w].nanoseconds * pace) for w in batch]
    raise BudgetError(
        f"times say something where they are the same when taken again; here they lie {noise:.0%} apart, after {TRIES} "
        "tries: the machine is too busy to measure latencies; wait for it to be calm, or calibrate elsewhere"
    )


def fitted(space: WidthSpace, found: Sequence[TimedNetwork], latency: Latency) -> LatencyModel:
    """The model whose form has the smallest error in cross-validation."""
    widths = np.array([m.widths for m in found], dtype=np.int64)
    times = np.array([m.nanoseconds for m in found])
    folds = np.random.default_rng(0).permutation(len(found)) % FOLDS
    best: tuple[float, str, list[Feature], FloatArray] | None = None
    for form, features in forms(space).items():
        columns = _columns(features, widths)
        errors = _unseen(columns, times, folds)
        score = float(np.median(np.abs(errors)))
        if best is None or score < best[0]:
            best = (score, form, features, errors)
    assert best is not None
    error, form, features, errors = best
    coefficients = _fit(_columns(features, widths), times)
    terms = tuple(
        Term(float(coefficient), block, polynomial)
        for coefficient, feature in zip(coefficients[1:], features, strict=True)
        if coefficient > 0
        for block, polynomial in feature
    )
    return LatencyModel(
        space=fingerprint(space),
        machine=machine(latency),
        form=form,
        constant=float(coefficients[0]),
        terms=terms,
        error=error,
        worst=float(np.quantile(np.abs(errors), CERTAIN)),
        margin=max(0.0, _conformal(errors)),
        count=len(found),
        original=next((m.nanoseconds for m in found if m.widths == space.original_widths), 0.0),
    )


def forms(space: WidthSpace) -> Mapping[str, list[Feature]]:
    """Features of each form of the model, by its name: what shares a coefficient, for which layers, in which blocks."""
    layers = [layer for layer in space.layers if layer.macs.terms]
    full = np.array([space.original_widths])
    positions = {layer.name: max(1, round(layer.positions(full))) for layer in layers}
    areas = [(positions[layer.name], _dense(layer)) for layer in layers]
    found: dict[str, list[Feature]] = {"macs": [tuple((1, layer.macs) for layer in layers)]}
    for block in (1, 8, 16):
        work = [(block, layer.macs) for layer in layers]
        made = tuple((block, outputs(layer, positions[layer.name])) for layer in layers)
        weights = tuple((block, layer.params) for layer in layers)
        found[f"macs and outputs in {block}"] = [tuple(work), made]
        found[f"kinds in {block}"] = [*_shared(work, [dense for _, dense in areas]), made, weights]
        found[f"areas in {block}"] = [*_shared(work, areas), made]
        found[f"areas and both in {block}"] = [*_shared(work, areas), made, *found["macs"]]
    return found


def _shared(work: Sequence[tuple[int, Polynomial]], keys: Sequence[object]) -> list[Feature]:
    """One feature for each key, of the layers that have it."""
    return [tuple(one for one, other in zip(work, keys, strict=True) if other == key) for key in dict.fromkeys(keys)]


def _dense(layer: LayerTerms) -> bool:
    """Whether inputs and outputs are of different groups: not in a depthwise convolution."""
    return any(len(groups) > 1 for groups in layer.macs.terms)


def outputs(layer: LayerTerms, positions: int) -> Polynomial:
    """Elements that a layer makes."""
    terms: dict[tuple[int, ...], int] = {}
    for segment in layer.out or ():
        groups = () if segment.group is None else (segment.group,)
        channels = segment.size if segment.group is None else segment.per_channel
        terms[groups] = terms.get(groups, 0) + channels * positions
    return Polynomial(terms)


def _columns(features: Sequence[Feature], widths: IntArray) -> FloatArray:
    """The design matrix, `(networks, 1 + features)`."""
    sums = [sum(Term(1.0, block, polynomial)(widths) for block, polynomial in feature) for feature in features]
    return np.column_stack([np.ones(len(widths)), *sums])


def _fit(columns: FloatArray, times: FloatArray) -> FloatArray:
    """Coefficients of at least 0 with the least sum of squared relative errors."""
    from scipy.optimize import nnls

    scale = columns.max(axis=0)
    found, _ = nnls(columns / scale / times[:, None], np.ones(len(times)))
    return np.asarray(found / scale)


def _unseen(columns: FloatArray, times: FloatArray, folds: npt.NDArray[np.int64]) -> FloatArray:
    """Relative errors, measured over predicted less one, of each network by a fit to the other folds."""
    errors = np.empty(len(times))
    for fold in range(FOLDS):
        held = folds == fold
        predicted = columns[held] @ _fit(columns[~held], times[~held])
        errors[held] = times[held] / np.maximum(predicted, 1e-9) - 1
    return errors


def _conformal(errors: FloatArray) -> float:
    """The margin that covers `CERTAIN` of unseen networks: a quantile with its correction for a finite sample."""
    rank = min(1.0, np.ceil(CERTAIN * (len(errors) + 1)) / len(errors))
    return float(np.quantile(errors, rank, method="higher"))


def fingerprint(space: WidthSpace) -> str:
    """What tells the layers of a network from others', whatever may be chosen of them."""
    facts = [sorted(map(str, terms.to_list())) for terms in (space.macs_terms, space.params_terms)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def machine(latency: Latency) -> str:
    """Where and by what times were taken, for people and to compare."""
    engine = engine_of(latency.engine)
    return f"{device_name('cpu')}, {platform.machine()}, {latency.engine} {engine.version}"
