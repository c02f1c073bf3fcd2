"""Parse untrusted YAML as plain data, without executing anything, without references, in bounded time."""

from __future__ import annotations

from typing import Any

import yaml

MOST_CHARACTERS = 65_536
# Short tagged values such as `!!int ''` make PyYAML raise the errors of its conversions.
_FAULTS = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)


class _PlainLoader(yaml.SafeLoader):
    """Safe loader that refuses aliases, with which a few lines can expand beyond any memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name); write the value out instead")
        return super().compose_node(parent, index)


def parse_yaml(text: str) -> Any:
    """Return the data of a YAML text.

    Raises:
        ValueError: invalid YAML, an alias, a tag that constructs an object, or more than 65,536 characters; the message
            has one line.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{len(text):,} characters; at most {MOST_CHARACTERS:,} are read")
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except _FAULTS as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None
