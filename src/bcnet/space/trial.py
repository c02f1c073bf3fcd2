"""Trial: run the model's own code at other widths.

Channel counts stored by a forward method are not visible in its graph. Narrow paths are therefore run on tensors that
have shapes but no data, in train and eval mode (both sides have the same shapes).
"""

from __future__ import annotations

import copy
import logging
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode

from bcnet.space.diagnosis import is_foreign
from bcnet.space.example import Example
from bcnet.space.layout import ParameterLayout, Side, length
from bcnet.space.narrowing import Narrowing, Runs
from bcnet.space.space import Widths, WidthSpace
from bcnet.space.symbols import Reason

_LOGS = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes", "torch.export._trace")
_GOLDEN = 0.618  # the fractional parts of its multiples are all different, and so are the ratios of the groups
_OFFSETS = (0.0, 0.29, 0.43, 0.83)
_NO_END = 2**31  # torch's constant for "to the end"
MODES = (True, False)  # train and eval, the order in which a model is traced and tried
Outputs = Sequence[Sequence[ParameterLayout]]


class GroupTrials:
    """Runs of a model at other widths.

    Args:
        model: the network.
        example: its arguments.
        outputs: the layouts of its output tensors for each of the `MODES`, which define the expected shapes.
        checks_slices: refuse slices that begin within a tensor and end beyond it, whose sizes may be right by chance.
    """

    def __init__(self, model: nn.Module, example: Example, outputs: Outputs, *, checks_slices: bool = False) -> None:
        self._model = model
        self._example = example
        self._outputs = outputs
        self._checks_slices = checks_slices

    def find_broken(self, space: WidthSpace) -> dict[int, Reason]:
        """Return the groups at which the model fails when they are narrow, with each error."""
        with self._trial(space) as trial:
            return trial.search(_narrow_widths(space, _OFFSETS[:1]))

    def runs(self, space: WidthSpace, held: Collection[int]) -> bool:
        """Return whether the model runs at several widths with all groups narrow except `held`."""
        with self._trial(space) as trial:
            return trial.error_of(set(range(len(space.groups))) - set(held), _narrow_widths(space, _OFFSETS)) is None

    def find_alike(
        self, space: WidthSpace, broken: Mapping[int, Reason], candidates: Iterable[Sequence[int]] | None = None
    ) -> list[list[int]]:
        """Return the groups among `broken` that can be narrowed in proportion to each other, in sets.

        Code that reads a channel count off one tensor and applies it to another ties them, invisibly to the graph. In
        each of the `candidates` (by default the groups that fail at one line of code), groups of equal width are tried
        together, split into the smallest sets of neighbours that run. The remaining ones are then tried in proportion.
        """
        if candidates is None:
            candidates = _group_by(broken, lambda group: broken[group].where)
        narrow = set(range(len(space.groups))) - set(broken)
        found: list[list[int]] = []
        with self._trial(space) as trial:

            def run(*sets: list[int]) -> bool:
                tied = [*found, *sets]
                # Several widths, so that a wrong tie cannot fit by coincidence.
                targets = [_in_proportion(space, widths, tied) for widths in _narrow_widths(space, _OFFSETS)]
                return trial.error_of(narrow.union(*tied), targets) is None

            def cut(groups: list[int]) -> list[list[int]]:
                # The shortest prefix that runs on its own is a set by itself; the rest is split in the same way.
                for end in range(2, len(groups) - 1):
                    if run(groups[:end], groups[end:]):
                        return [groups[:end], *cut(groups[end:])]
                return [groups]

            for groups in candidates:
                left: list[int] = []
                for alike in _group_by(groups, lambda group: space.groups[group].max_width):
                    if len(alike) > 1 and run(alike):
                        found += cut(alike)
                    else:
                        left += alike
                if len(left) > 1 and _are_multiples(space, left) and run(left):
                    found.append(left)
        return found

    def run_as_it_is(self) -> None:
        """Run the model unchanged, in both modes."""
        with _without_data(self._model, self._example) as (model, example):
            for training in MODES:
                example.run(model.train(training))

    @contextmanager
    def _trial(self, space: WidthSpace) -> Iterator[_Trial]:
        slices = _WithinTensors() if self._checks_slices else nullcontext()  # type: ignore[no-untyped-call]
        with _without_data(self._model, self._example) as (model, example), slices:
            yield _Trial(model, example, space, self._outputs)


@contextmanager
def _without_data(model: nn.Module, example: Example) -> Iterator[tuple[nn.Module, Example]]:
    """Yield copies of model and example whose tensors have shapes but no data, and the mode they require."""
    # With a ShapeEnv, operators with results of data-dependent size (nonzero) run too.
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
    fakes: dict[int, Any] = {id(t): _fake(mode, t) for t in [*model.parameters(), *model.buffers()]}
    fake_model = copy.deepcopy(model, fakes)  # outside the mode, so that tensors in plain attributes stay real
    with mode, torch.no_grad(), without_log():
        yield fake_model, example.map_tensors(mode.from_tensor)


class _WithinTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses slices that begin within a tensor and end beyond it: the code assumes more channels."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten.slice.Tensor and len(args) >= 4:
            tensor, dim, start, end = args[:4]
            size = tensor.shape[dim]
            if start is not None and end is not None and 0 < start < size < end < _NO_END:
                raise ValueError(f"a part from {start} to {end} of {size} channels")
        return func(*args, **(kwargs or {}))


@contextmanager
def without_log() -> Iterator[None]:
    """Silence torch's log of each operator that refuses its shapes, which trials cause on purpose."""
    logs = [logging.getLogger(name) for name in _LOGS]
    before = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        yield
    finally:
        for log, disabled in zip(logs, before, strict=True):
            log.disabled = disabled


def _fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    fake = mode.from_tensor(tensor.detach())
    return nn.Parameter(fake, requires_grad=False) if isinstance(tensor, nn.Parameter) else fake


def _narrow_widths(space: WidthSpace, offsets: Sequence[float]) -> list[Widths]:
    """Return the narrowest widths and, for each offset, odd ones up to full width that differ between groups."""

    def mix(offset: float) -> Widths:
        ratios = (0.3 + 0.6 * ((_GOLDEN * i + offset) % 1) for i in range(len(space.groups)))
        return tuple(
            max(g.least, round(ratio * (g.max_width // g.unit)) * g.unit)
            for ratio, g in zip(ratios, space.groups, strict=True)
        )

    smallest = tuple(group.least for group in space.groups)
    return [smallest, *map(mix, offsets)]


def _group_by(groups: Iterable[int], key: Callable[[int], object]) -> list[list[int]]:
    """Return the groups in lists of equal key, in order."""
    found: dict[object, list[int]] = {}
    for group in groups:
        found.setdefault(key(group), []).append(group)
    return list(found.values())


def _are_multiples(space: WidthSpace, groups: Sequence[int]) -> bool:
    """Return whether the full width of each group is a multiple of the narrowest one's."""
    sizes = [space.groups[group].max_width for group in groups]
    return all(size % min(sizes) == 0 for size in sizes)


def _in_proportion(space: WidthSpace, widths: Widths, sets: Iterable[list[int]]) -> Widths:
    """Return the widths with each set in proportion to its narrowest group, among those with the largest units."""
    changed = list(widths)
    for groups in sets:
        first = min(groups, key=lambda group: (space.groups[group].max_width, -space.groups[group].unit))
        for group in groups:
            changed[group] = widths[first] * (space.groups[group].max_width // space.groups[first].max_width)
    return tuple(changed)


class _Trial:
    def __init__(self, model: nn.Module, example: Example, space: WidthSpace, outputs: Outputs) -> None:
        self._model = model
        self._example = example
        self._space = space
        self._outputs = outputs
        self._narrowing = Narrowing(model, space.layouts, space.numbers)

    def _run(self, widths: Widths, training: bool) -> Any:
        with self._narrowing.apply(widths, Side.LEFT, slicing=_take_shape):
            return self._example.run(self._model.train(training))

    def error(self, widths: Widths) -> Reason | None:
        """Return the error at `widths` in either mode, or None."""
        for training, layouts in zip(MODES, self._outputs, strict=True):
            expected = [tuple(length(dim, widths) for dim in layout) for layout in layouts]
            try:
                shapes = _shapes(self._run(widths, training))
            except Exception as error:
                return _reason(error)
            if shapes != expected:
                return Reason(f"the shape of the output changes: {shapes} instead of {expected}")
        return None

    def search(self, targets: list[Widths]) -> dict[int, Reason]:
        """Narrow as many groups as the model's code allows, in order, and pin the others.

        Groups are tried in halves of halves, so that a few failing groups cost a few runs each.
        """
        held: dict[int, Reason] = {}
        narrow: set[int] = set()

        def admit(groups: range) -> None:
            """Narrow these groups if the network still runs, otherwise search for the failing ones."""
            error = self.error_of(narrow.union(groups), targets)
            if error is None:
                narrow.update(groups)
            elif len(groups) == 1:
                held[groups[0]] = error
            else:
                # A failing range is halved; `narrow` already contains the groups admitted on its left.
                middle = len(groups) // 2
                admit(groups[:middle])
                admit(groups[middle:])

        admit(range(len(self._space.groups)))
        return held

    def error_of(self, narrow: set[int], targets: list[Widths]) -> Reason | None:
        """Return the error with these groups narrow and all others full, or None."""
        for target in targets:
            widths = (t if g in narrow else f for g, (t, f) in enumerate(zip(target, self._space.full, strict=True)))
            error = self.error(tuple(widths))
            if error is not None:
                return error
        return None


def _take_shape(_: str, tensor: torch.Tensor, runs: Runs) -> torch.Tensor:
    """Return a tensor without data of the shape that `take` returns, in one step even for thousands of runs."""
    for d, dim_runs in enumerate(runs):
        size = sum(size for _, size in dim_runs)
        if len(dim_runs) > 1:
            tensor = tensor.new_empty((*tensor.shape[:d], size, *tensor.shape[d + 1 :]))
        elif size != tensor.shape[d]:
            tensor = tensor.narrow(d, dim_runs[0][0], size)
    return tensor


def _shapes(output: Any) -> list[tuple[int, ...]]:
    return [tuple(t.shape) for t in torch.utils._pytree.tree_leaves(output) if isinstance(t, torch.Tensor)]


def _reason(error: Exception) -> Reason:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.line and not is_foreign(f.filename)]
    frame = frames[-1] if frames else None
    where = f"{frame.filename}, line {frame.lineno}" if frame else ""
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    if not isinstance(error, RuntimeError | ValueError) or not first:  # others need their type named
        first = ": ".join(filter(None, (type(error).__name__, first)))
        if frame:
            first += f" in `{frame.line}`"
    remedy = "let the code read numbers of channels off the tensor (x.shape[1])"
    return Reason(f"the model's own code breaks at other widths: {first}", "", where, remedy)
