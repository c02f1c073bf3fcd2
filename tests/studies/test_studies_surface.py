"""Studies are users of the library: they import what it lists, and nothing behind that."""

import ast
import importlib
from pathlib import Path

import pytest

import bcnet
from studies.shared.provenance import ROOT

FILES = sorted((ROOT / "studies").rglob("*.py"))


def imported(file: Path) -> set[tuple[str, str]]:
    """Modules of bcnet that a file imports from, with the names; `import bcnet` is of no name."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bcnet":
            found |= {(node.module, alias.name) for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names if alias.name.split(".")[0] == "bcnet"}
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_a_study_imports_bcnet_and_what_its_rooms_list(file):
    for module, name in imported(file):
        assert module.count(".") <= 1, f"{module} is inside a room: import from the room, or list the name there"
        listed = importlib.import_module(module)
        rooms = bcnet._ROOMS if module == "bcnet" else ()
        assert not name or module == "bcnet.errors" or name in (*listed.__all__, *rooms), f"{module} lists no {name}"


def test_the_studies_are_there():
    assert len(FILES) > 30
    assert any(module == "bcnet.train" for file in FILES for module, _ in imported(file))
