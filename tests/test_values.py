"""Values stay what they were made as: no one can change a recipe, a score or a layout behind another's back."""

import dataclasses
import importlib
import pkgutil

import pytest

import bcnet

# What counts, caches or is filled in while it lives.
CHANGING = {
    "bcnet.train.objective.Objective",
    "bcnet.train.replay.PathReplay",
}


def dataclasses_of_the_package() -> dict[str, type]:
    found = {}
    for module in pkgutil.walk_packages(bcnet.__path__, "bcnet."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.name:
                found[f"{module.name}.{name}"] = value
    return found


KINDS = dataclasses_of_the_package()


@pytest.mark.parametrize("name", sorted(KINDS))
def test_values_are_frozen(name):
    assert KINDS[name].__dataclass_params__.frozen == (name not in CHANGING)
