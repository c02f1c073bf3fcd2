"""The workload of a run: the model, its width space, and the data split into parts."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from bcnet.costs import Budget, Latency, OnMicrocontroller
from bcnet.data import Batch, DataSet, Loaders, given_data, load, made_by
from bcnet.data import imports_code as data_imports_code
from bcnet.data.loaders import tensors_behind
from bcnet.data.unlabelled import input_loaders
from bcnet.distributed import can_fork
from bcnet.errors import BudgetError, DataError, ModelError, RecipeError, first_line
from bcnet.files.tensors import digest_of
from bcnet.machine.defaults import Layout, computes_in, place, runs_channels_last
from bcnet.machine.devices import Precision
from bcnet.machine.memory import largest_activation
from bcnet.models import ModelSpec, create, imports_code
from bcnet.pytree import Pytree, arguments, by_name, call_model, map_tensors, slice_batch
from bcnet.run.callables import UserCallables
from bcnet.run.imitation import ImitatedBatches, imitated_parts
from bcnet.run.inputs import Input, InputFacts, describe_inputs
from bcnet.run.parts import Parts, cut_data
from bcnet.run.pretrained import Weights, load_pretrained
from bcnet.run.settings import Settings
from bcnet.space import Side, WidthSpace
from bcnet.space.compiled import undo_compile
from bcnet.supernet import build
from bcnet.supernet.build import narrow_in_place, own_space
from bcnet.supernet.initialisation import is_trained
from bcnet.tasks import Classification, Imitation, Task, task_named
from bcnet.train import EpochBatches, derived_generator, derived_seed

_DIGEST = re.compile(r" [0-9a-f]{12}$")  # end of the description of a data set that was passed in

_CONTIGUOUS = (
    "Images and weights are contiguous: the network, or a narrower one, does not run on channels-last images, which "
    "are often faster. A flatten by x.view(x.size(0), -1) is the usual cause; x.flatten(1) runs on both."
)

ModelLike = nn.Module | Callable[[], nn.Module] | str
DataLike = str | DataSet | Loaders | Mapping[str, Any] | tuple[Any, ...] | list[Any]
Factory = Callable[[], nn.Module]


@dataclass(frozen=True)
class Source:
    """A model and a matching data set, with their names in the settings.

    `data_digest` identifies images and labels, `pretrained` the weights given for the model. `notes` are remarks for
    the user, `own` the user's functions, and `task` is the training task.

    """

    model_name: str
    data_name: str
    data_digest: str
    data: DataSet | Loaders
    model: nn.Module
    factory: Factory | None
    pretrained: str | None = None
    notes: tuple[str, ...] = ()
    own: UserCallables = field(default_factory=UserCallables)
    task: Task = field(default_factory=Classification)

    @property
    def input(self) -> InputFacts:
        """Inputs and outputs of the networks."""
        return _input_of(self.data, self.task)

    @property
    def may_fork(self) -> bool:
        """Return whether forked processes can read the data: true for data in memory, not for loaders or open files."""
        return can_fork() and self.data.in_memory

    @property
    def layout(self) -> Layout:
        """Memory format of images and of separately trained networks."""
        return "channels_last" if self.data.channels_last else "contiguous"

    def made_contiguous(self) -> Source:
        """Return the source with contiguous images and networks, and a note that says so."""
        data = dataclasses.replace(self.data, channels_last=False)
        return dataclasses.replace(self, data=data, notes=(*self.notes, _CONTIGUOUS))

    def largest_activation(self) -> int:
        """Bytes of the model's largest activation for one image; 0 if it does not run on the images."""
        try:
            return largest_activation(copy.deepcopy(self.model).eval(), self.example())
        except Exception:  # tracing reports the error
            return 0

    def computes_in(self, precision: Precision, device: torch.device) -> bool:
        """Return whether the model runs on the device in a resolved precision."""
        return computes_in(precision, self.model, self.example(), device)

    def example(self) -> Pytree:
        """Return two network inputs, `(2, ...)`."""
        if isinstance(self.data, Loaders):
            return slice_batch(self.data.held_out[0], slice(2))
        return self.data.normaliser(self.data.train.pixels[:2])


@dataclass(frozen=True)
class Workload:
    """A source with its width space and the parts of its data, on the run's device.

    `budget` is as given, and `space` computes all of its measures. `model` is as wide as the space and `original` is
    the given network; they are the same unless the space is widened.
    """

    source: Source
    model: nn.Module
    original: nn.Module
    space: WidthSpace
    budget: Budget
    parts: Parts

    def limited_by(self, budget: Budget) -> Workload:
        """Return the workload under the same budget, after a measure of it got its model.

        Raises:
            BudgetError: the budget is below the narrowest network.
        """
        space = self.space.with_measures(budget)
        if all(measure.countable for measure in budget.limits):
            space.feasible(budget)
            space.uniform(budget)
        return dataclasses.replace(self, space=space, budget=budget)

    @property
    def data(self) -> DataSet | Loaders:
        """All data."""
        return self.source.data

    @property
    def training_batches(self) -> EpochBatches:
        """Training batches of the supernet."""
        return self.parts.training

    @property
    def all_training(self) -> EpochBatches:
        """Training batches of the final networks."""
        return self.parts.all_training

    @property
    def macs_of_answers(self) -> float:
        """Multiply-adds per training input and epoch for targets from the original; 0 unless it runs in every epoch."""
        batches = self.parts.training
        every_time = isinstance(batches, ImitatedBatches) and not batches.answers_once
        return float(self.space.reference.macs) if every_time else 0.0

    @property
    def validation(self) -> list[Batch]:
        """Equal fixed batches for scoring candidates."""
        return self.parts.validation

    @property
    def fresh(self) -> list[Batch]:
        """Equal fixed batches for scoring the best candidates again."""
        return self.parts.fresh


def _input_of(data: DataSet | Loaders, task: Task) -> InputFacts:
    if isinstance(data, Loaders):
        inputs = describe_inputs(data.held_out[0])
        return InputFacts(inputs, data.names_of_classes, data.normaliser, task.outputs, data.preparation)
    image = Input(data.image_shape)
    return InputFacts(image, data.class_names, data.normaliser, task.outputs, data.preparation)


def task_of(task: Task | str | None) -> Task:
    """Return the task, given as an object or by name; classification by default.

    Raises:
        RecipeError: not a task.
    """
    if isinstance(task, str):
        return task_named(task)
    if task is not None and not isinstance(task, Task):
        raise RecipeError(f"a task must be a value of a subclass of bcnet.Task; got {task!r}: give Mine(), not Mine")
    return Classification() if task is None else task


def _check_weights(network: nn.Module) -> nn.Module:
    """Return the network if its weights exist, are in single precision and can be trained.

    `copy_network` reports lazy layers.

    Raises:
        ModelError: a condition is violated.
    """
    parameters = {name: tensor for name, tensor in network.named_parameters() if not is_lazy(tensor)}
    if parameters and not any(tensor.requires_grad for tensor in parameters.values()):
        raise ModelError(
            "a network to search can be trained; got one none of whose weights requires gradients: call "
            "model.requires_grad_(True)"
        )
    for name, tensor in parameters.items():
        if tensor.is_meta:
            raise ModelError(
                f"a network to search must have weights; {name} is on the meta device, which has none: make it on the "
                "CPU, or call model.to_empty(device='cpu') and load its weights"
            )
        if tensor.is_inference():
            raise ModelError(
                f"a network to search can be trained; {name} was made under torch.inference_mode(), where no tensor "
                "can: make it outside of that"
            )
        if tensor.is_floating_point() and tensor.dtype is not torch.float32:
            raise ModelError(
                f"a network to search must have weights in float32; got {tensor.dtype} in {name}: call model.float(), "
                "and leave torch.set_default_dtype alone; a recipe's `precision` says what is computed in less"
            )
    return network


def is_name(model: str) -> bool:
    """Return whether the settings' `model` is a name, not the description of an object."""
    return " " not in model


def refuse_to_import(name: str, place: Path) -> None:
    """Raise ModelError if a model named in a file would import code, since the file may be untrusted."""
    if imports_code(name):
        raise ModelError(_untrusted_message("model", name, place))


def refuse_data_code(name: str, place: Path) -> None:
    """Raise DataError if data named in a file would import code, since the file may be untrusted."""
    if data_imports_code(name):
        raise DataError(_untrusted_message("data", name, place))


def _untrusted_message(what: str, name: str, place: Path) -> str:
    return (
        f"{place} is of the {what} {name!r}, which imports and runs that code; a file may be untrusted, so name it "
        f"yourself: --{what} {name}, in Python {name!r} as the {what}"
    )


def open_source(
    model: ModelLike,
    data: DataLike,
    *,
    image_size: int | None,
    seed: int,
    pretrained: Weights | None = None,
    own: UserCallables | None = None,
    task: Task | None = None,
    own_weights: bool = False,
) -> Source:
    """Load data and make the model for them, with the `pretrained` weights if given.

    A module, or the result of the user's factory, counts as pretrained if its weights are trained (`is_trained`) or if
    `own_weights` says so. A model given by name gets the data's classes and channels, and the data get the model's
    usual image size unless `image_size` is given. The user's own model gets the images unchanged.

    Raises:
        ModelError: an unknown model, or a factory that does not return one.
        DataError: an unknown or unusable data set.
    """
    spec = create(model) if isinstance(model, str) else None
    size = image_size if image_size is not None or spec is None else _usual_size(spec)
    given = own or UserCallables()
    aim = task or Classification(given.loss)
    loaded = _load_data(data, aim, size, image_size)
    if isinstance(loaded, Loaders):
        loaded = dataclasses.replace(loaded, accepted=aim.check_targets)
    else:
        aim.check_targets(loaded.train.labels, f"the training images of {loaded.name}")
    aim = aim.with_labels(_labels_of(loaded), loaded.num_classes)
    digest = _digest_of_images(loaded)
    data_name = data if isinstance(data, str) else f"{loaded.name} {digest}"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "model"))
        facts = _input_of(loaded, aim)
        channels, height = facts.channels_and_size
        # Without labels, a model by name has its default number of classes.
        name, network, factory = make_model(model, facts.num_classes or None, channels, height)
    weights = None
    notes: list[str] = []
    if pretrained is not None:
        network = copy.deepcopy(network)
        weights, note = load_pretrained(network, pretrained, whole=aim.imitates)
        notes += [note] if note is not None else []
    elif (
        is_trained(network)
        or (own_weights and not isinstance(model, str))
        or (aim.imitates and (isinstance(model, nn.Module) or _loads_weights(factory, network)))
    ):
        weights = digest_of(network.state_dict())
    elif aim.imitates:
        raise RecipeError(
            f"an imitation needs a trained network; {name} comes without weights: give pretrained= (--pretrained), the "
            "network as a module, or a function that loads its weights"
        )
    if isinstance(loaded, Loaders):
        unknown = [part for part in _OTHERS if tensors_behind(getattr(loaded, part)) is None]
        notes += [_UNKNOWN.format(" and ".join(unknown))] if unknown else []
    source = Source(name, data_name, digest, loaded, network, factory, weights, tuple(notes), given, aim)
    if isinstance(aim, Imitation):
        source = _with_imitation(source, aim)
    return source if runs_channels_last(network, source.example()) else source.made_contiguous()


def _loads_weights(factory: Factory | None, network: nn.Module) -> bool:
    """Return whether a factory returns the same weights under another seed: then they are loaded, not random."""
    if factory is None:
        return False
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch.initial_seed() ^ 1)
        again = factory().state_dict()
    state = network.state_dict()
    return again.keys() == state.keys() and all(torch.equal(again[key], tensor) for key, tensor in state.items())


def _load_data(data: DataLike, task: Task, size: int | None, image_size: int | None) -> DataSet | Loaders:
    """Return the data given by name or in any other form; for an imitation they can be inputs alone."""
    if isinstance(data, str) and isinstance(task, Imitation) and data.startswith("inputs:"):
        return task.read(data.partition(":")[2], image_size)
    if isinstance(data, str) and not data_imports_code(data):
        return load(data, image_size=size)
    given = made_by(data) if isinstance(data, str) else data
    found = input_loaders(given) if task.imitates else None
    return given_data(given, image_size) if found is None else found


def _with_imitation(source: Source, task: Imitation) -> Source:
    """Return the source with the kind of each imitated output, and a note that lists them."""
    network = copy.deepcopy(source.model).eval()
    example = source.example()
    try:
        with torch.no_grad():
            first, again = (call_model(network, example) for _ in range(2))
    except Exception:  # tracing reports the error
        return source
    known = task.of(network, first, again, _answer_to_one(network, example, first))
    note = f"The network's outputs are imitated as {' and '.join(known.kinds)}; the original is not trained."
    return dataclasses.replace(source, task=known, notes=(*source.notes, note))


@torch.no_grad()
def _answer_to_one(network: nn.Module, example: Pytree, answer: Any) -> Any:
    """Return the outputs for the first input alone; `answer` itself if the network accepts no batch of one."""
    try:
        return call_model(network, slice_batch(example, slice(1)))
    except Exception:
        return answer


def prepare(
    source: Source, settings: Settings, budget: Budget | None = None, space: WidthSpace | None = None
) -> Workload:
    """Trace the width space and split the data, raising early if something cannot work.

    `budget` is that of the settings with its measures; required if one is custom. `space` is the width space if it is
    traced already.

    Raises:
        TraceError: the model does not run on the images, or has nothing to search.
        BudgetError: the budget is below the narrowest network.
        DataError: too few images for a batch or a split.
        RecipeError: too few batches for the settings.
    """
    example = source.example()
    space = trace(source.model, example, settings) if space is None else space
    _check_outputs(source, example)
    if source.layout == "channels_last" and not _narrow_ones_run_channels_last(source.model, space, example):
        source = source.made_contiguous()
    limits = settings.budget if budget is None else budget
    fitted = [measure for measure in limits.limits if isinstance(measure, (Latency, OnMicrocontroller))]
    if all(measure.countable for measure in fitted):  # otherwise after the first stages have measured (`limited_by`)
        space = space.with_measures(limits)
        space.feasible(limits)
        space.uniform(limits)
    options = settings.options
    layout = options.layout if source.layout == "channels_last" else "contiguous"
    original = place(copy.deepcopy(source.model), options.device, layout)
    model = original
    if settings.space.widen > 1:
        model = place(widened_model(source.model, source.factory, space, settings), options.device, layout)
    parts = cut_data(source.data, settings)
    if isinstance(source.task, Imitation):
        parts = imitated_parts(parts, original, source.task)
    return Workload(source, model, original, space, limits, parts)


def _narrow_ones_run_channels_last(model: nn.Module, space: WidthSpace, example: Pytree) -> bool:
    """Run the narrowest network, whose maps may have one channel, and one with the second widest choices."""
    own = own_space(model, space)
    nearly_full = tuple(group.choices[-2:][0] for group in own.groups)
    networks = (
        narrow_in_place(copy.deepcopy(undo_compile(model)), own, widths, Side.LEFT)
        for widths in (own.narrowest, nearly_full)
    )
    return all(runs_channels_last(network, example) for network in networks)


def widened_model(model: nn.Module, factory: Factory | None, space: WidthSpace, settings: Settings) -> nn.Module:
    """Return a newly initialised network as wide as the widened `space`."""
    generator = derived_generator(settings.seed, "widened model")
    return build(model, space, space.full, factory=factory, generator=generator)


def trace(model: nn.Module, example: Pytree, settings: Settings) -> WidthSpace:
    """Return the model's width space under the settings; `example` is a batch of two inputs.

    Raises:
        BudgetError: multiples depend on a device, but there is no calibration.
        TraceError: as for `WidthSpace.trace`.
    """
    options = settings.space
    if options.multiple_of == "auto":
        raise BudgetError(
            'multiple_of="auto" takes the multiples that pay from a calibration, and there is none: run `bcnet '
            "calibrate`, and give its file as --latency-model with a limit on latency"
        )
    args, kwargs = arguments(example)
    return WidthSpace.trace(
        copy.deepcopy(model),
        args,
        example_kwargs=kwargs,
        num_choices=options.num_choices,
        min_ratio=options.min_ratio,
        min_width=options.min_width,
        multiple_of=options.multiple_of,
        ignore=options.ignore,
        only=options.only,
        widen=options.widen,
    )


def _usual_size(spec: ModelSpec) -> int | None:
    family, colon, _ = spec.name.partition(":")
    own = bool(colon) and family not in ("torchvision", "timm")
    return None if own else spec.input_size[1]


def make_model(
    model: ModelLike, classes: int | None, channels: int, image_size: int
) -> tuple[str, nn.Module, Factory | None]:
    """Return the settings' name of a model, the module, and its factory.

    A model given by name gets the classes, channels and image size; others are unchanged.

    Raises:
        ModelError: an unknown model, a factory that does not return one, or weights that cannot be trained.
        TraceError: a network that cannot be copied.
    """
    if isinstance(model, str):
        spec = create(model, classes, in_channels=channels, image_size=image_size)
        return model, _check_weights(spec.build()), spec.build
    from bcnet.space.tracing import copy_network  # slow to import

    if isinstance(model, nn.Module):
        model = _check_weights(undo_compile(model))
        copy_network(model)  # refuse early what cannot be copied
        return f"{type(model).__qualname__} {digest_of(model.state_dict())}", model, None
    if not callable(model):
        raise ModelError(
            f"a model must be an nn.Module, a function that makes one, or a name; got {type(model).__name__}"
        )
    try:
        made = model()
    except Exception as error:
        raise ModelError(
            f"a model factory has to run without arguments; it failed with {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, nn.Module):
        raise ModelError(
            f"a model factory must return a torch.nn.Module; got {type(made).__name__}: return the network"
        )
    network = _check_weights(undo_compile(made))
    copy_network(network)
    factory = model if network is made else lambda: undo_compile(model())
    return f"{type(network).__qualname__} from a factory", network, factory


def _check_outputs(source: Source, example: Pytree) -> None:
    network = copy.deepcopy(source.model).eval()
    with torch.no_grad():
        outputs = call_model(network, example)
        source.task.check(outputs, source.data.num_classes)
        _check_batch(network, example)
        if isinstance(source.data, Loaders) and not source.task.imitates:
            # Targets that do not fit the outputs, such as masks of another shape, are reported before anything is
            # written.
            source.task.score(outputs, slice_batch(source.data.held_out[1], slice(2)))


def _check_batch(network: nn.Module, example: Pytree) -> None:
    """Raise ModelError if a network that accepts the example's two inputs accepts neither three nor four."""
    try:
        call_model(network, map_tensors(lambda tensor: torch.cat([tensor, tensor[:1]]), example))
    except Exception as error:
        with suppress(Exception):  # it may take pairs only
            call_model(network, map_tensors(lambda tensor: torch.cat([tensor, tensor]), example))
            return
        raise ModelError(
            f"a network to search takes any number of inputs at once; {type(network).__name__} took 2 and failed on 3 "
            f"({first_line(error)}): read the number off the input (x.size(0)); of an exported program pass the module "
            "that it was exported from"
        ) from error


_OTHERS = ("train", "test")
_UNKNOWN = (
    "A run identifies its data, but the {} loader's are not visible: its data set has neither tensors nor targets. "
    "If they change, use another run directory."
)


def _labels_of(data: DataSet | Loaders) -> torch.Tensor | None:
    """Return the class numbers of the training images or of a validation loader; None for other targets."""
    return data.train.labels if isinstance(data, DataSet) else data.labels


def _digest_of_images(data: DataSet | Loaders) -> str:
    if isinstance(data, Loaders):
        sizes = f"{len(data.train)} batches of {data.batch_size}, {len(data.test)} to test"
        held = zip(("images", "labels"), data.held_out, strict=True)
        found = {f"{what}{name}": t for what, tree in held for name, t in by_name(tree).items()}
        behind = {f"{part}{i}": t for part in _OTHERS for i, t in enumerate(tensors_behind(getattr(data, part)) or ())}
        return digest_of(found | behind, sizes)
    parts = [data.train, data.test, *([] if data.validation is None else [data.validation])]
    return hashlib.sha256(" ".join(images.digest() for images in parts).encode()).hexdigest()[:12]
