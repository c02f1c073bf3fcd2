"""Untrusted YAML as plain data: nothing in it runs, refers to itself, or takes long to read."""

from __future__ import annotations

from typing import Any

import yaml

MOST_CHARACTERS = 65_536
# Short tagged values, `!!int ''` for one, make PyYAML raise whatever its conversions meet.
_FAULTS = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)


class _PlainLoader(yaml.SafeLoader):
    """Safe loading without aliases, with which a few lines can describe more than a memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name); write the value out instead")
        return super().compose_node(parent, index)


def parse_yaml(text: str) -> Any:
    """The data of a YAML text.

    Raises:
        ValueError: no YAML, an alias, a tag that makes an object, or more than 65,536 characters; the message is one
            line that says what was got.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{len(text):,} characters; at most {MOST_CHARACTERS:,} are read")
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except _FAULTS as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None
