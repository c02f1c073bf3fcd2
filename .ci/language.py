"""Check the language of docstrings: none begins with a relative word, which tells a purpose before the thing.

python .ci/language.py src
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

RELATIVE = (
    *("What", "Whether", "Those", "Of", "As", "The same", "That", "How", "Which", "Where", "Who", "Whose", "When"),
)
Documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def faults(path: Path) -> list[str]:
    """Return a line for each docstring of a file that begins with a relative word."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = ast.get_docstring(node) if isinstance(node, Documented) else None
        word = next((word for word in RELATIVE if text and text.startswith((f"{word} ", f"{word},"))), None)
        if word is not None:
            name = getattr(node, "name", "the module")
            found.append(f"{path}:{node.body[0].lineno}: the docstring of {name} begins with {word!r}: say what it is")
    return found


def main(folders: list[str]) -> int:
    """Print all faults; 1 where there are any."""
    found = [fault for folder in folders for path in sorted(Path(folder).rglob("*.py")) for fault in faults(path)]
    print(*found, sep="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
