"""Words on a study's command line that are names of something."""

from __future__ import annotations

from collections.abc import Iterable

import typer


def check_known(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that there are not; `what` is what one of them is: "--skip", "a study".

    Raises:
        typer.BadParameter: with those that there are, and the first that is not.
    """
    names = list(known)
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise typer.BadParameter(f"{what} is one of {'; '.join(names)}; got {unknown[0]!r}")
