"""Importing stays light, and each room imports only from those above it in CONTRIBUTING's table."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import bcnet

SOURCE = Path(bcnet.__file__).parent
HEAVY = ("torch", "pymoo", "datasets", "vl_convert", "torchvision", "sklearn", "scipy", "rich", "pydantic")
# What every name together may need beyond torch: a tenth of torch's own time. What is heavier waits for its first use.
LIGHT = {"PIL", "annotated_types", "pydantic", "pydantic_core", "safetensors", "typing_inspection", "yaml"}
CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
# Each imports from those before it only.
ROOMS = tuple(re.findall(r"^\| `(\w+)` \|", CONTRIBUTING.read_text(encoding="utf-8"), re.MULTILINE))


def imported(file: Path) -> set[str]:
    """The packages of bcnet that a file imports, also inside functions and for type checking."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "bcnet":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("bcnet.")}
    return found


def files_of(room: str) -> list[Path]:
    return list((SOURCE / room).rglob("*.py")) or [SOURCE / f"{room}.py"]


def test_every_package_has_its_place():
    packages = {file.parent.name for file in SOURCE.glob("*/__init__.py")}
    packages |= {file.stem for file in SOURCE.glob("*.py") if not file.stem.startswith("__")}
    assert packages == set(ROOMS)
    assert len(ROOMS) == len(packages)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_upward_only(room):
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for file in files_of(room):
        assert imported(file) <= allowed, file


def modules_imported(file: Path) -> set[str]:
    """The modules of bcnet that a file imports, also inside functions and for type checking."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bcnet."):
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_imports_itself_by_way_of_others(room):
    files = [file for file in files_of(room) if file.name != "__init__.py"]
    names = {".".join(("bcnet", *file.relative_to(SOURCE).with_suffix("").parts)): file for file in files}
    graph = {name: modules_imported(file) & names.keys() for name, file in names.items()}
    methods = {"bcnet.space.tracing", "bcnet.space.balance", "bcnet.space.problem"}  # behind methods of WidthSpace
    graph.get("bcnet.space.space", set()).difference_update(methods)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_importing_bcnet_imports_nothing_heavy():
    script = f"import bcnet, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.slow
def test_all_public_names_together_pull_in_little_beyond_torch():
    script = """
import sys, torch
known = set(sys.modules)
import bcnet
for name in bcnet.__all__:
    getattr(bcnet, name)
packages = {name.partition(".")[0] for name in set(sys.modules) - known} - set(sys.stdlib_module_names)
print(*sorted(name for name in packages if not name.startswith(("_", "cython_runtime"))))
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(shown.stdout.split()) <= {"bcnet", "numpy"} | LIGHT


def test_every_public_name_is_there():
    for name in bcnet.__all__:
        assert getattr(bcnet, name) is not None
    assert set(bcnet.__all__) <= set(dir(bcnet))
    assert bcnet.__version__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'serach'"):
        _ = bcnet.serach
