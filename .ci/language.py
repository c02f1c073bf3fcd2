"""Check the language of the package: how docstrings begin and how functions are named.

No docstring begins with a relative word, which tells a purpose before the thing. No function is named by a bare
participle: a name starts with a verb in the imperative, names the value that is returned, or is a predicate.

python .ci/language.py src
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

RELATIVE = (
    *("What", "Whether", "Those", "Of", "As", "The same", "That", "How", "Which", "Where", "Who", "Whose", "When"),
)
# "balanced" and "scaled" name the widths that they give, beside "uniform" and "random".
PARTICIPLE = re.compile(r"(?!(?:seed|need|speed|feed|embed|balanced|scaled)$).{2,}ed|.{2,}ing(?<!heading)(?<!string)")
IRREGULAR = frozenset(
    (
        *("begun", "bound", "broken", "brought", "built", "chosen", "dealt", "done", "drawn", "driven", "fallen"),
        *("felt", "found", "frozen", "given", "gone", "got", "grown", "heard", "held", "hidden", "kept", "known"),
        *("left", "lost", "made", "meant", "met", "paid", "said", "seen", "sent", "shown", "sold", "spent", "stood"),
        *("taken", "taught", "thought", "thrown", "told", "understood", "won", "worn", "written"),
    )
)
Documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def is_participle(name: str) -> bool:
    """Return whether a function's name is a participle and nothing else."""
    word = name.strip("_")
    return word in IRREGULAR or (PARTICIPLE.fullmatch(word) is not None and "_" not in word)


def faults(path: Path) -> list[str]:
    """Return a line for each docstring that begins with a relative word, and for each participle."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = ast.get_docstring(node) if isinstance(node, Documented) else None
        word = next((word for word in RELATIVE if text and text.startswith((f"{word} ", f"{word},"))), None)
        if word is not None:
            name = getattr(node, "name", "the module")
            found.append(f"{path}:{node.body[0].lineno}: the docstring of {name} begins with {word!r}: say what it is")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name):
            found.append(
                f"{path}:{node.lineno}: {node.name} is a bare participle: start with a verb, or name the value"
            )
    return found


def main(folders: list[str]) -> int:
    """Print all faults; 1 where there are any."""
    found = [fault for folder in folders for path in sorted(Path(folder).rglob("*.py")) for fault in faults(path)]
    print(*found, sep="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
