"""Parts shared by all commands: process set-up, and the layout of help pages."""

from __future__ import annotations


def prepare_process(allocator: str, primitives: int | None) -> None:
    """Configure the process before torch computes anything.

    Raises:
        RecipeError: an unknown allocator.
    """
    from bcnet.errors import RecipeError
    from bcnet.machine.allocator import keep_memory
    from bcnet.machine.defaults import set_primitive_cache_capacity

    if allocator not in ("keep", "system"):
        raise RecipeError(f"--allocator must be keep or system; got {allocator!r}")
    if allocator == "keep":
        keep_memory()
    set_primitive_cache_capacity(primitives)


def page(text: str) -> str:
    """Return help text with unwrapped paragraphs, for the terminal to wrap, and escaped brackets."""
    plain = text.replace("[", "\\[")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in plain.strip().split("\n\n"))
