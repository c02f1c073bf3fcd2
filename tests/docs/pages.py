"""The pages that a reader sees, and what stands in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FRONT = (ROOT / "README.md", *sorted(ROOT.glob("C*.md")))
PAGES = (*FRONT, *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`")


def name(page: Path) -> str:
    return page.stem


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of these languages; "" is a block without one."""
    return [block for language, block in _BLOCK.findall(text(page)) if language in languages]


def lines(page: Path) -> list[str]:
    """The lines of the blocks that show a terminal, continued ones as one."""
    return "".join(blocks(page, "", "console")).replace("\\\n", " ").splitlines()


def prose(page: Path) -> str:
    """The page without its blocks."""
    return _BLOCK.sub("", text(page))


def inline(page: Path) -> list[str]:
    """What is set as code in the prose, on one line each."""
    return [" ".join(code.split()) for code in _INLINE.findall(prose(page))]
