"""The Python blocks of the pages use names and arguments that there are, and run."""

import ast
import inspect
from importlib import import_module

import pages
import pytest
import torch
from tiny_job import RECIPE, TinyNetwork, tiny_data

import bcnet
from bcnet.api.search import search
from bcnet.space.rules import RULES

WITH_PYTHON = [page for page in pages.PAGES if pages.blocks(page, "python")]
TAKES_LONG = {"README": "a whole search and an export to ONNX", "tasks": "two searches"}


def test_there_are_pages_with_python():
    assert {"README", "own_model", "own_data", "extending", "how_it_works"} <= {page.stem for page in WITH_PYTHON}


@pytest.mark.parametrize("page", WITH_PYTHON, ids=pages.name)
def test_names_and_arguments_exist(page):
    uses = [use for block in pages.blocks(page, "python") for use in ast.walk(ast.parse(block))]
    found = [value for use in uses for value in imported(use)]
    assert found or page.stem == "README"
    for use in uses:
        if isinstance(use, ast.Attribute):
            named(use)
        if isinstance(use, ast.Call) and (function := named(use.func)) is not None:
            taken = inspect.signature(function).parameters
            open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
            assert open_ended or {keyword.arg for keyword in use.keywords} <= set(taken), ast.unparse(use)


def imported(use):
    """What an import statement from bcnet gets."""
    if isinstance(use, ast.ImportFrom) and use.module.partition(".")[0] == "bcnet":
        return [getattr(import_module(use.module), alias.name) for alias in use.names]
    if isinstance(use, ast.Import):
        return [import_module(alias.name) for alias in use.names if alias.name.partition(".")[0] == "bcnet"]
    return []


def named(use):
    """The value of `bcnet.a.b`; None for an expression that is none of bcnet's. An unknown name is an error."""
    if isinstance(use, ast.Name):
        return bcnet if use.id == "bcnet" else None
    if isinstance(use, ast.Attribute) and (outer := named(use.value)) is not None:
        return getattr(outer, use.attr)
    return None


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem in TAKES_LONG else [])
        for page in WITH_PYTHON
    ],
)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bcnet, "search", quick_search)  # seconds instead of hours
    before = dict(RULES)  # a page may add rules, for itself
    names = taken_for_granted()
    try:
        for block in pages.blocks(page, "python"):
            exec(compile(block, str(page), "exec"), names)
    finally:
        RULES.clear()
        RULES.update(before)


def quick_search(*args, **kwargs):
    """A search that takes seconds instead of hours, whatever its settings."""
    method = kwargs.get("method") or bcnet.Trainings(effort="small", networks=8)
    if isinstance(method, bcnet.BCNet):
        method = method.model_copy(update={"epochs": 1, "population": 4, "generations": 2})
    space = {"num_choices": 4, **dict(kwargs.get("space") or {})}
    quick = {"method": method, "training": RECIPE, "epochs": None, "space": space, "options": {"threads": 1}}
    return search(*args, **{**kwargs, **quick, "progress": False})


def taken_for_granted():
    """What the reader has: a network, data, the widths and input of a supernet, and a score."""
    data, model = tiny_data(), TinyNetwork()
    train, test = (
        [(image, int(label)) for image, label in zip(part.pixels, part.labels, strict=True)]
        for part in (data.train, data.test)
    )
    example_input = torch.zeros(2, 1, 8, 8)
    space = bcnet.WidthSpace.trace(model, example_input)
    return {
        "__name__": "page",
        "bcnet": bcnet,
        "MyModel": TinyNetwork,
        "model": model,
        "example_input": example_input,
        "x": torch.randn(2, 1, 8, 8),
        "train": train,
        "test": test,
        "widths": space.uniform(macs=0.5),
        "score": lambda widths: float(sum(widths)),
    }
