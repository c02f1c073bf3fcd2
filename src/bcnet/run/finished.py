"""Networks of a finished run, for use in Python or for export."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn

from bcnet.errors import ModelError, RunError
from bcnet.files.tensors import load_module, read_tensors
from bcnet.models import create
from bcnet.run import names
from bcnet.run.directory import RunDirectory, read_result, read_settings, run_path
from bcnet.run.inputs import InputFacts
from bcnet.run.result import NETWORKS, RunResult, Which
from bcnet.run.settings import Settings
from bcnet.run.subject import Subject, subject_of
from bcnet.run.workload import ModelLike, is_name, refuse_to_import, trace
from bcnet.space import Widths, WidthSpace
from bcnet.space.compiled import undo_compile
from bcnet.supernet import rebuild

NETWORK_FILES: Mapping[str, str] = {"original": names.ORIGINAL, "uniform": names.UNIFORM, "searched": names.FINAL}
"""File of each network."""


def load(
    source: str | os.PathLike[str], factory: ModelLike | None = None, *, with_normalisation: bool = False
) -> nn.Module:
    """Return the network that a finished run found, with its trained weights, in eval mode on the CPU.

    Args:
        source: the run directory, or a file written by `bcnet export --format safetensors`.
        factory: returns the full network, as for `bcnet.search`. Required if the run was given a module, a function or
            `package.module:factory`, since files never cause code to be imported.
        with_normalisation: add a layer that normalises images in [0, 1]. By default the network takes normalised
            images, as in training (`FinishedRun.read(run).input.normaliser` converts bytes).

    Raises:
        RunError: no run, an unfinished run, or corrupt files.
        ModelError: `factory` is missing, or makes another network.

    Example: `bcnet.load("runs/half")(images)`
    """
    path = run_path(source)
    if path.is_file():
        network, facts = _load_file(path, factory)
    else:
        finished = FinishedRun.read(path, factory)
        network = finished.network()
        facts = finished.input
    return facts.normalise(network) if with_normalisation else network


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: its settings, the content of `result.json`, and its three networks on demand.

    `input` describes the networks' inputs. Made by `FinishedRun.read`.
    """

    path: Path
    settings: Settings
    result: RunResult
    input: InputFacts
    factory: Callable[[], nn.Module]
    traced: WidthSpace | None = None

    @classmethod
    def read(
        cls, run: str | os.PathLike[str], factory: ModelLike | None = None, *, traced: WidthSpace | None = None
    ) -> FinishedRun:
        """Open a run directory; `factory` is as in `load`, `traced` the network's space if the caller has it.

        Raises:
            RunError: no run, an unfinished run, or corrupt files.
            ModelError: the run's network cannot be made by name, and `factory` is missing.
        """
        path = run_path(run)
        settings = read_settings(path)
        result = read_result(path)
        facts = input_facts(path, settings)
        return cls(path, settings, result, facts, factory_of(path, settings.model, facts, factory), traced)

    def widths(self, which: Which = "searched") -> Widths:
        """Return the widths of one of the networks."""
        return self.result.networks[which].widths

    def architecture(self, which: Which = "searched") -> dict[str, Any]:
        """Return one of the networks as a document for `bcnet.rebuild`.

        Raises:
            RunError: `architecture.json` is missing or not JSON.
        """
        file = self.path / names.ARCHITECTURE
        try:
            document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            groups = [group | {"width": w} for group, w in zip(document["groups"], self.widths(which), strict=True)]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(f"{file} cannot be used ({error}): restore it, or start a new run directory") from None
        figures = self.result.networks[which]
        return document | {"groups": groups, "macs": figures.macs, "params": figures.params}

    def network(self, which: Which = "searched") -> nn.Module:
        """Return one of the networks with its trained weights, in eval mode on the CPU.

        Raises:
            RunError: its weights are missing or corrupt.
            ModelError: the factory makes another network.
        """
        file = self.path / NETWORK_FILES[which]
        tensors, _ = read_tensors(file, RunDirectory(self.path, self.settings).identity(NETWORKS[which]))
        network = rebuild(self.architecture(which), self.factory)
        load_module(network, tensors, file)
        return network.eval()

    def space(self) -> WidthSpace:
        """Width space of the run, traced again if it was not given. Its costs are multiply-adds and parameters only.

        Raises:
            ModelError: the factory's network has another space.
        """
        space = self.traced
        if space is None:
            space = trace(self.factory(), self.input.zeros(2), self.settings)
        searched = _subject(self.path, self.settings).fingerprint
        if space.fingerprint() != searched:
            raise ModelError(
                f"the network must be the one that run {self.path} searched, of the space {searched}; got the space "
                f"{space.fingerprint()}: put the code of {self.settings.model!r} back as it was"
            )
        return dataclasses.replace(space, measures=())


def _load_file(path: Path, factory: ModelLike | None) -> tuple[nn.Module, InputFacts]:
    """Return the network of an exported safetensors file, from the architecture in its metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            notes = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        facts = InputFacts.from_dict(json.loads(notes["input"]), path)
        architecture = json.loads(notes["architecture"])
        model = notes["model"]
        if not isinstance(architecture, dict):  # a string would be taken for a path
            raise TypeError(f"an architecture must be a mapping; got {type(architecture).__name__}")
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(
            f"a file to load must be one that `bcnet export --format safetensors` wrote; {path} is not one "
            f"({type(error).__name__}: {error}): give such a file, or a run directory"
        ) from None
    network = rebuild(architecture, factory_of(path, model, facts, factory))
    load_module(network, tensors, path)
    return network.eval(), facts


def input_facts(path: Path, settings: Settings) -> InputFacts:
    """Return the inputs and outputs of a run's networks.

    Raises:
        RunError: the run has not started, or its file lacks them.
    """
    return InputFacts.from_dict(_subject(path, settings).input, path)


def _subject(path: Path, settings: Settings) -> Subject:
    return subject_of(RunDirectory(path, settings).read(names.SPACE), path)


def factory_of(path: Path, searched: str, facts: InputFacts, factory: ModelLike | None) -> Callable[[], nn.Module]:
    """Return the factory of a run's full network: `factory`, or the model by name if that imports no code."""
    if isinstance(factory, nn.Module):
        module = undo_compile(factory)
        return lambda: copy.deepcopy(module)
    if factory is not None and not isinstance(factory, str):
        make = factory
        return lambda: undo_compile(make())
    name = factory or searched
    if not is_name(name):
        raise ModelError(
            f"{path} is of {searched!r}, which only your code can make: give the function that makes it, "
            f"bcnet.load({str(path)!r}, factory), or --model package.module:factory"
        )
    if factory is None:
        refuse_to_import(name, path)
    channels, height = facts.channels_and_size
    return create(name, facts.num_classes, in_channels=channels, image_size=height).build
