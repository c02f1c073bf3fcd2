"""Channel counts stored as attributes of the user's own modules: `self.channels`, `self.shape = (c, 8, 8)`.

`bcnet.space.narrowing` sets the attributes of torch's layers. An attribute of another module is set if the network's
code fails at other widths without it, or if `forward` never reads it, so that other methods (a switch to deployment, a
reset) find matching values. A kind of attribute is defined by its class: all instances are set alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

from bcnet.space.layout import Layout, Segment, follows_widths
from bcnet.space.space import WidthSpace

Kind = tuple[type, str]
_MISSING = re.compile(r"has no attribute '(\w+)'")
_MOST_TRIES = 16  # other choices of attributes, each of which needs a run of the network
_MOST_SEARCHES = 4  # choices, each of which needs many runs
_MOST_READS = 16
_PART = -1  # the option for a length that is a part of a longer one, such as sizes of a split
MOST_GROUPS = 16  # of a network whose parts are tried one by one
_ATTENTION = ("embed_dim", "kdim", "vdim", "head_dim")


class Trials(Protocol):
    """Runs of the network at other widths, on tensors without data."""

    def find_broken(self, space: WidthSpace) -> Collection[int]:
        """Return the groups at which the network fails when they are narrow."""
        ...

    def runs(self, space: WidthSpace, held: Collection[int]) -> bool:
        """Return whether the network runs with all groups narrow except `held`."""
        ...


@dataclass(frozen=True)
class _Place:
    """An int attribute of a module, or an int in a tuple attribute, and the layouts of its length.

    `share` is the first layout that is a part of a longer one. Layouts are those of the module's own tensors, or else
    of the tensors of the module around it.
    """

    key: str
    kind: Kind
    part: nn.Module
    options: tuple[Layout, ...]
    share: Layout | None
    is_own: bool
    is_certain: bool

    def option(self, number: int) -> Layout:
        """Return the layout of an option, or of the adjacent one."""
        if number == _PART:
            return self.share or self.options[0]
        return self.options[min(number, len(self.options) - 1)]


class StoredNumbers:
    """The attributes of `model` that may hold lengths of a space's tensors.

    Args:
        model: the network that the space was traced from.
        space: its width space.
    """

    def __init__(self, model: nn.Module, space: WidthSpace) -> None:
        self._places = list(_places(model, space))
        self.kinds = list(dict.fromkeys(place.kind for place in self._places))

    def layouts(self, chosen: Mapping[Kind, int], unread: frozenset[Kind] = frozenset()) -> dict[str, Layout]:
        """Return `WidthSpace.numbers` for the chosen kinds, each with its option.

        Of `unread` kinds, only instances with an unambiguous layout are included.
        """
        found = {}
        for place in self._places:
            if place.kind in chosen:
                found[place.key] = place.option(chosen[place.kind])
            elif place.kind in unread and place.is_certain:
                found[place.key] = place.options[0]
        return found

    def select_kinds(self, space: WidthSpace, held: Collection[int], trials: Trials) -> dict[Kind, int]:
        """Return the fewest kinds, with their options, that allow the most groups to be narrowed.

        `held` are the groups that cannot be narrowed without them.
        """

        def count_by(chosen: Mapping[Kind, int]) -> WidthSpace:
            return space.with_numbers(self.layouts(chosen))

        if not self.kinds or not held:
            return {}
        best: Collection[int] = ()
        attempts = self._attempts()
        chosen = next((some for some in attempts if trials.runs(count_by(some), best)), None)
        if chosen is None:
            if len(space.groups) > MOST_GROUPS:
                return {}
            found = [(some, trials.find_broken(count_by(some))) for some in attempts[:_MOST_SEARCHES]]
            chosen, best = min(found, key=lambda one: len(one[1]))
        if len(best) >= len(held) or not trials.runs(count_by(chosen), best):
            return {}
        # Drop every kind that is not needed: an attribute that stays untouched cannot be set wrongly.
        for kind in list(chosen):
            fewer = {one: option for one, option in chosen.items() if one != kind}
            if trials.runs(count_by(fewer), best):
                chosen = fewer
        return chosen

    def counted_alike(self, broken: Collection[int]) -> tuple[dict[str, Layout], Collection[tuple[int, ...]]]:
        """Return `WidthSpace.numbers` for the groups in `broken`, and the sets of groups that one number counts.

        One attribute for the lengths of two layers ties them, for instance in a block that reshapes queries and values
        by it.
        """
        numbers: dict[str, Layout] = {}
        sets: dict[tuple[int, ...], None] = {}
        for place in self._places:
            counted = {option[0].group: option for option in place.options if len(option) == 1}
            groups = tuple(group for group in counted if group is not None and group in broken)
            if place.is_own and groups:
                numbers[place.key] = counted[groups[0]]
                sets[groups] = None
        return numbers, sets.keys()

    def unread_kinds(self, runs: Callable[[], object]) -> frozenset[Kind]:
        """Return the kinds that `runs`, a call of the model in both modes, does not read."""
        candidates = {place.kind for place in self._places if place.is_certain}
        for _ in range(_MOST_READS):
            taken = self._remove_places(candidates)
            try:
                runs()
                return frozenset(candidates)
            except AttributeError as error:
                names = set(_MISSING.findall(str(error)))
                # The attribute that was missed is read by forward, so its kind is no candidate; try again with the
                # others.
                read = {kind for kind in candidates if kind[1] in names}
                if not read:
                    return frozenset()
                candidates -= read
            except Exception:  # the code may take another branch without its attributes
                return frozenset()
            finally:
                for part, values in taken:
                    part.__dict__.update(values)
        return frozenset()

    def _attempts(self) -> list[dict[Kind, int]]:
        """Return kinds with options to try: first those with a tensor of that length in the module, then all."""
        own = [kind for kind in self.kinds if any(place.is_own for place in self._places if place.kind == kind)]
        return [*self._choices(own), *(self._choices(self.kinds) if len(own) < len(self.kinds) else [])]

    def _choices(self, kinds: Collection[Kind]) -> list[dict[Kind, int]]:
        # Option 0 is the most likely layout of each attribute; then the second one, or a part of a longer layout, for
        # all kinds.
        first = dict.fromkeys(kinds, 0)
        options = [option for option in (1, _PART) if any(self._has_option(kind, option) for kind in kinds)]
        others = [dict.fromkeys(kinds, option) for option in options]
        # A kind that counts something else, such as pixels, may break what others repair.
        others += [{one: option for one, option in first.items() if one != kind} for kind in kinds]
        others += [{**first, kind: option} for option in options for kind in kinds if self._has_option(kind, option)]
        return [first, *others[:_MOST_TRIES]]

    def _has_option(self, kind: Kind, option: int) -> bool:
        places = [place for place in self._places if place.kind == kind]
        return any(place.share is not None if option == _PART else len(place.options) > option for place in places)

    def _remove_places(self, kinds: set[Kind]) -> list[tuple[nn.Module, dict[str, Any]]]:
        taken = []
        for place in self._places:
            name = place.kind[1]
            if place.kind in kinds and name in place.part.__dict__:
                taken.append((place.part, {name: place.part.__dict__.pop(name)}))
        return taken


def _places(model: nn.Module, space: WidthSpace) -> Iterator[_Place]:
    for prefix, part in model.named_modules():
        if isinstance(part, nn.MultiheadAttention):
            names = _ATTENTION
        elif type(part).__module__.startswith("torch."):
            continue
        else:
            names = tuple(vars(part))
        # Lengths of the module's own tensors are likelier than those around it, and a telling name than either.
        layouts = _layouts_within(prefix, space)
        around = _layouts_within(prefix.rpartition(".")[0], space)
        for name in names:
            if name.startswith("_") or name not in vars(part):
                continue
            for suffix, number in _ints(vars(part)[name]):
                own = _as_long_as(number, layouts)
                options = own or _as_long_as(number, around)
                by_name = _by_name(name, number, prefix, space)
                if by_name is not None:
                    options = [by_name, *(option for option in options if option != by_name)]
                if options:
                    certain = by_name is not None or len(own) == 1
                    share = next(_shares(number, layouts if own else around), None)
                    place = f"{prefix}:{name}{suffix}"
                    yield _Place(place, (type(part), name), part, tuple(options), share, bool(own), certain)


def _layouts_within(prefix: str, space: WidthSpace) -> list[Layout]:
    """Return the layouts of all dimensions of a module's tensors."""
    return [dim for name, layout in space.layouts.items() if _is_within(name, prefix) for dim in layout]


def _is_within(tensor: str, prefix: str) -> bool:
    return not prefix or tensor.startswith(f"{prefix}.")


def _ints(value: Any) -> Iterator[tuple[str, int]]:
    """Yield the ints above 1 of an attribute with their keys."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 1:
        yield "", value
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            if isinstance(item, int) and not isinstance(item, bool) and item > 1:
                yield f".{index}", item


def _as_long_as(number: int, layouts: list[Layout]) -> list[Layout]:
    """Return the layouts of this length: whole dimensions, parts of one, then channel counts without their elements."""
    whole = [layout for layout in layouts if sum(s.size for s in layout) == number]
    parts = _shares(number, layouts)
    channels = [
        (Segment(s.group, number),)
        for layout in layouts
        for s in layout
        if s.per_channel > 1 and s.size == number * s.per_channel
    ]
    found = dict.fromkeys(layout for layout in (*whole, *parts, *channels) if follows_widths(layout))
    return list(found)


def _shares(number: int, layouts: list[Layout]) -> Iterator[Layout]:
    """Yield the proper runs of segments in longer layouts that have this total length."""
    for layout in layouts:
        for start in range(len(layout)):
            size = 0
            for stop in range(start, len(layout)):
                size += layout[stop].size
                run = layout[start : stop + 1]
                if size >= number:
                    if size == number and len(run) < len(layout) and follows_widths(run):
                        yield run
                    break


def _by_name(name: str, number: int, prefix: str, space: WidthSpace) -> Layout | None:
    """Return the layout that an attribute such as `in_channels` or `out_planes` counts, in the first or last layer."""
    word = name.lower().partition("_")[0]
    if word not in ("in", "inp", "out", "oup"):
        return None
    weights = [
        layout for tensor, layout in space.layouts.items() if _is_within(tensor, prefix) and len(layout) >= 2
    ]  # (out, in, ...)
    if word in ("in", "inp"):
        dims = [layout[1] for layout in weights]
    else:
        dims = [layout[0] for layout in weights[::-1]]
    return next((dim for dim in dims if sum(s.size for s in dim) == number and follows_widths(dim)), None)
