"""Importing stays light, and packages know only what the design's table lets them know."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bcnet

SOURCE = Path(bcnet.__file__).parent
HEAVY = ("torch", "pymoo", "cvxpy", "datasets", "vl_convert", "torchvision", "sklearn", "scipy", "rich", "pydantic")
# What every name together may need beyond torch: a tenth of torch's own time. What is heavier waits for its first use.
LIGHT = {"PIL", "annotated_types", "pydantic", "pydantic_core", "safetensors", "typing_inspection", "yaml"}
LAYERS = {
    "errors": set(),
    "runs": set(),
    "space": set(),
    "supernet": {"space"},
    "data": set(),
    "distributed": set(),
    "train": {"space", "supernet", "data", "distributed"},
    "searchers": {"runs", "space"},
    "models": {"space"},
    "pruners": {"space"},
    "testing": {"space", "searchers"},
    "pipeline": {"runs", "space", "supernet", "data", "train", "searchers", "models", "pruners", "distributed"},
    "report": {"runs", "space", "train", "searchers", "pipeline", "distributed", "export"},
    "export": {"space", "supernet", "data", "train", "searchers", "models", "pipeline"},
}
SEES_A_SUPERNET = "evaluator"


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


def test_every_package_has_its_place():
    packages = {file.parent.name for file in SOURCE.glob("*/__init__.py")} | {"errors"}
    assert packages == set(LAYERS) | {"cli"}


@pytest.mark.parametrize("package", LAYERS)
def test_imports_point_upward_only(package):
    files = list((SOURCE / package).rglob("*.py")) or [SOURCE / f"{package}.py"]
    for file in files:
        allowed = LAYERS[package] | {"errors", package}
        if package == "searchers" and file.stem == SEES_A_SUPERNET:
            allowed |= {"supernet"}
        if file.exists():
            assert imported(file) <= allowed, file


def test_importing_bcnet_imports_nothing_heavy():
    script = f"import bcnet, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


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
