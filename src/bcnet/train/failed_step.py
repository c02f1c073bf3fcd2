"""A bad step kept for replay: everything that it was a function of, in one verified file, with a page to read beside.

The tensor file holds the weights, the optimiser's state and the running statistics before the step, the batch as the
network saw it, and a teacher's logits. Its JSON state holds the paths, the seed of dropout and the rest of the noise,
and the recipe. `<name>.json` beside it repeats that state for people.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from bcnet.errors import RunError
from bcnet.files.atomic import make_folder, write_atomic
from bcnet.files.tensors import read_tensors, write_tensors
from bcnet.nests import Nest, from_named
from bcnet.nests import tensors as tensors_of
from bcnet.space import Side
from bcnet.train.recipe import Recipe, parse_recipe
from bcnet.train.step import Path as NetworkPath
from bcnet.train.step import Term

Part = Literal["x", "y"]
_PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class FailedStep:
    """A bad step.

    `fault` says what was wrong, `losses` are those of the `terms` and `norm` that of the gradient, as the run got them.
    `noise_seed` seeds torch right before the step. `tensors` are those of the file, `module:NAME` and `optimizer:NAME`
    before the step, `batch:x` `(batch, ...)` and `batch:y` `(batch,)`, of several inputs `batch:x[0]` or `batch:x.key`,
    with a teacher `batch:taught` `(batch, classes)`; `channels_last` is the memory format of `batch:x`, which a file
    does not keep and on which the bits depend. `about` is what the caller of `train` said about the module, `scaler`
    the state of an fp16 run's gradient scaler.
    """

    stage: str
    step: int
    fault: str
    terms: tuple[Term, ...]
    losses: tuple[float, ...]
    norm: float
    lr: float
    noise_seed: int
    channels_last: bool
    recipe: Recipe
    about: Mapping[str, Any]
    scaler: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor] = dataclasses.field(repr=False)

    def save(self, folder: Path, identity: Mapping[str, Any]) -> Path:
        """Write the two files, atomically, and return the path of the first.

        Raises:
            RunError: the file system refuses.
        """
        make_folder(folder)
        path = folder / f"{identity.get('stage', self.stage)}-step-{self.step}.safetensors"
        state = self._state()
        write_tensors(path, self.tensors, identity, state)
        page = {"identity": dict(identity), **state, "torch": torch.__version__, "tensors": path.name}
        write_atomic(path.with_suffix(".json"), (json.dumps(page, indent=2) + "\n").encode())
        return path

    def batch(self, part: Part) -> Nest:
        """Inputs or targets of the step."""
        prefix = f"batch:{part}"
        parts = {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}
        nest: Nest = from_named(parts)
        return nest

    def message(self, saved: str) -> str:
        """What happened, where it was saved, and what to try, for the error that ends the run."""
        widths = " and ".join(str(list(term.recorded)) for term in self.terms if term.recorded)
        where = f" at widths {widths}" if widths else ""
        policy = "explosion_factor=null" if math.isfinite(sum(self.losses) + self.norm) else "on_bad_step=skip"
        clip = self.recipe.clip_norm
        precision = self.recipe.precision
        tries = [f"lower lr ({self.lr:.4g} at this step)"]
        tries.append("set clip_norm" if clip is None else f"lower clip_norm (now {clip:g})")
        tries += [f"take precision fp32 (now {precision})"] if precision != "fp32" else []
        return (
            f"stage {self.stage}, step {self.step}{where}: {self.fault}; {saved}. In a new run directory "
            f"{' or '.join(tries)}; or go on in this one, from its last checkpoint, with --set {policy}"
        )

    def _state(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        state["terms"] = [
            {"recorded": t.recorded, "paths": [{"widths": p.widths, "side": p.side.name} for p in t.paths]}
            for t in self.terms
        ]
        # JSON has no NaN and no infinity
        state["losses"] = [repr(loss) for loss in self.losses]
        state["norm"] = repr(self.norm)
        state["recipe"] = self.recipe.model_dump(mode="json")
        del state["tensors"]
        return state


def load_failed_step(path: Path, identity: Mapping[str, Any]) -> FailedStep:
    """The failed step that `save` wrote.

    Raises:
        RunError: the file is missing, damaged, or of another run.
    """
    tensors, state = read_tensors(path, identity)
    try:
        state["terms"] = tuple(_term(term) for term in state["terms"])
        state["losses"] = tuple(map(float, state["losses"]))
        state["norm"] = float(state["norm"])
        state["recipe"] = parse_recipe(state["recipe"])
        state["step"] = int(state["step"])
        state["noise_seed"] = int(state["noise_seed"])
        failed_step = FailedStep(**state, tensors=tensors)
        if not isinstance(state["about"], Mapping) or not all(tensors_of(failed_step.batch(part)) for part in _PARTS):
            raise ValueError("the batch or what the module was is missing")
        return failed_step
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise RunError(f"{path} holds no step of this version: {error}: let the run meet it again") from None


def _term(term: Mapping[str, Any]) -> Term:
    paths: Sequence[Mapping[str, Any]] = term["paths"]
    return Term(tuple(term["recorded"]), tuple(NetworkPath(tuple(p["widths"]), Side[p["side"]]) for p in paths))
