"""Import the user's own objects by name, `package.module:object`. This executes their code."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from bcnet.errors import BCNetError


def import_object(name: str, *, what: str, forms: str, error: type[BCNetError]) -> Callable[..., Any]:
    """Import and return the function or class `name`, from a module or from a file, `folder/module.py:object`.

    `what` (its purpose) and `forms` (the valid forms of a name) complete error messages.

    Raises:
        BCNetError: of type `error`: a malformed name, a module that cannot be imported, or no such function in it.
    """
    place, _, member = name.partition(":")
    package = _module_name(place)
    if not all(part.isidentifier() for part in (*package.split("."), member)):
        raise error(f"a {what} must be {forms}; got {name!r}")
    try:
        module = importlib.import_module(package)
    except Exception as cause:
        raise error(
            f"the module of {what} {name!r} has to be importable; importing {package!r} failed with "
            f"{type(cause).__name__}: {cause}: {_import_hint(cause, package)}"
        ) from cause
    if place.endswith(".py") and Path(_place(module)).resolve() != Path(place).resolve():
        raise error(
            f"{what} {name!r} has to come from that file; but {package!r} is {_place(module)}, which comes first on "
            "Python's path: rename the file"
        )
    found = getattr(module, member, None)
    if not callable(found):
        got = "no such name" if found is None else f"a {type(found).__name__}"
        public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise error(
            f"{what} {name!r} has to name a function or class of {package!r} ({_place(module)}); got {got}; there are "
            f"{', '.join(sorted(public)) or 'none'}"
        )
    return found  # type: ignore[no-any-return]


def _module_name(package: str) -> str:
    """Return the module of a file in the working directory; any other name as it is."""
    if not package.endswith(".py"):
        return package
    path = Path(package)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return ".".join(path.with_suffix("").parts)


def _import_hint(cause: Exception, package: str) -> str:
    missing = cause.name if isinstance(cause, ModuleNotFoundError) else None
    if missing is not None and (package == missing or package.startswith(f"{missing}.")):
        return "install it, go to its folder, or put that on PYTHONPATH"
    return "it is found, but does not import"


def _place(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or "built in"
