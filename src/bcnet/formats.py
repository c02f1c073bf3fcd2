"""Export formats of a network, each with the runner that checks its files."""

from __future__ import annotations

import importlib
import inspect
import io
import logging
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

import torch
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as format_safetensors
from torch import nn

from bcnet.errors import ExportError, OpenBatchError, first_line
from bcnet.pytree import Pytree, arguments, call_model, tensors

__all__ = [
    "Format",
    "Int8",
    "Onnx",
    "Pt2",
    "Runner",
    "SafeTensors",
    "export_graph",
    "import_package",
    "in_order",
    "quiet_exporters",
    "save_program",
    "without_gradients",
]

Opened = Literal["nothing", "batch", "size"]
"""Open dimensions of an exported graph: none, the batch, or batch, height and width."""

Runner = Callable[[Pytree], Any]  # inputs (batch, ...) -> outputs of the network, usually logits (batch, classes)


_OLDEST_EXPORTED = 18  # the oldest operator set version that PyTorch's exporter writes
_OPEN = {0: "batch", 2: "height", 3: "width"}  # names of open dimensions


class Format(ABC):
    """An export format, and how to run a file of it."""

    suffix: ClassVar[str]
    runtime: ClassVar[str]  # the library that runs the file
    holds_graph: ClassVar[bool] = True  # False: the file holds weights only

    opens_batch: ClassVar[bool] = True  # accepts any batch size if none is given
    opens_size: ClassVar[bool] = False  # can leave height and width open too, and resize images
    takes_bytes: ClassVar[bool] = False
    is_int8: ClassVar[bool] = False

    @abstractmethod
    def write(
        self, network: nn.Module, example: Pytree, notes: Mapping[str, str], *, opened: Opened = "batch"
    ) -> bytes:
        """Return the content of the file.

        Args:
            example: a network input with a batch of at least two.
            opened: the dimensions to leave open.

        Raises:
            ExportError: the network has an operator that the format lacks, or a package is missing.
        """

    @abstractmethod
    def runner(self, content: bytes, network: nn.Module, threads: int) -> Runner:
        """Return a function that runs what `write` returned. Formats of weights alone run a copy of `network`."""


class Int8(Format):
    """Format in int8, by quantisation after training.

    Args:
        samples: calibration inputs `(samples, batch, ...)`, from which ranges are taken; required to write a file.
    """

    is_int8 = True
    takes_bytes = False

    def __init__(self, samples: Pytree | None = None) -> None:
        self._samples = samples

    @property
    def samples(self) -> Pytree:
        """Calibration inputs.

        Raises:
            ExportError: none were given.
        """
        if self._samples is None:
            raise ExportError(
                f"an int8 file must be quantised by samples; got none: give {type(self).__name__}(samples)"
            )
        return self._samples


@dataclass(frozen=True)
class Onnx(Format):
    """ONNX by PyTorch's exporter, in operator set `opset` (default: the exporter's).

    A single input is named `images`, a single output `logits`. Several inputs are named as the arguments of `forward`.
    """

    suffix: ClassVar[str] = "onnx"
    runtime: ClassVar[str] = "onnxruntime"
    opens_size: ClassVar[bool] = True
    takes_bytes: ClassVar[bool] = True

    opset: int | None = None

    def write(
        self, network: nn.Module, example: Pytree, notes: Mapping[str, str], *, opened: Opened = "batch"
    ) -> bytes:
        """See `Format`."""
        return optimized_onnx(self.graph(network, example, opened=opened), notes, self.opset)

    def graph(self, network: nn.Module, example: Pytree, *, opened: Opened = "batch") -> Any:
        """Return the `onnx.ModelProto` before `optimized_onnx`: original weights, batch norm not folded."""
        for package in ("onnx", "onnxscript", "onnxruntime"):
            import_package(package)
        newest = import_package("onnx").defs.onnx_opset_version()
        if self.opset is not None and self.opset > newest:
            raise ExportError(f"an opset must be at most the installed onnx's newest, {newest}; got {self.opset}")
        program = export_graph(network, example, opened=opened)
        try:
            with quiet_exporters():
                model = torch.onnx.export(
                    program,
                    dynamo=True,
                    opset_version=None if self.opset is None else max(self.opset, _OLDEST_EXPORTED),
                    input_names=["images"] if len(tensors(example)) == 1 else None,
                    output_names=["logits"] if len(program.graph_signature.user_outputs) == 1 else None,
                    optimize=False,
                    verbose=False,
                )
        except Exception as error:
            raise _refusal("ONNX", network, error, opened) from error
        assert model is not None
        proto = model.model_proto
        _use_flatten(proto.graph)
        return proto

    def runner(self, content: bytes, network: nn.Module, threads: int) -> Runner:
        """See `Format`."""
        ort = import_package("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        try:
            session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime raises several types of its own
            raise ExportError(
                f"ONNX Runtime does not run the file of {type(network).__name__} ({first_line(error)}): take --format "
                "pt2 or safetensors, or leave out of forward() what it names (torch.autocast, where that is a type)"
            ) from error
        names = [value.name for value in session.get_inputs()]

        def run(inputs: Pytree) -> Any:
            args, kwargs = arguments(inputs)
            feed = kwargs or dict(zip(names, args, strict=True))
            arrays = session.run(None, {name: tensor.numpy() for name, tensor in feed.items()})
            found = [torch.from_numpy(array) for array in arrays]
            return found[0] if len(found) == 1 else found

        return run


class Pt2(Format):
    """Archive of `torch.export`, for `torch.export.load` and AOTInductor.

    Loading an archive may unpickle objects: load only archives that you trust. This class loads only its own output.
    """

    suffix = "pt2"
    runtime = "torch.export"
    opens_size = True
    takes_bytes = True

    def write(
        self, network: nn.Module, example: Pytree, notes: Mapping[str, str], *, opened: Opened = "batch"
    ) -> bytes:
        """See `Format`."""
        program = export_graph(network, example, opened=opened)
        for node in program.graph_module.graph.nodes:
            node.meta.pop("stack_trace", None)  # source lines of the user's files
        buffer = io.BytesIO()
        save_program(program, buffer, network, notes)
        return buffer.getvalue()

    def runner(self, content: bytes, network: nn.Module, threads: int) -> Runner:
        """See `Format`."""
        with quiet_exporters():
            module = torch.export.load(io.BytesIO(content)).module()
        return without_gradients(module)


class SafeTensors(Format):
    """Weights as safetensors; the metadata hold the architecture, from which `bcnet.load` rebuilds the network."""

    suffix = "safetensors"
    runtime = "PyTorch with the loaded weights"
    holds_graph = False

    def write(
        self, network: nn.Module, example: Pytree, notes: Mapping[str, str], *, opened: Opened = "batch"
    ) -> bytes:
        """See `Format`."""
        tensors = {name: tensor.detach().contiguous().clone() for name, tensor in network.state_dict().items()}
        content: bytes = format_safetensors(tensors, metadata={"format": "pt", **notes})
        return content

    def runner(self, content: bytes, network: nn.Module, threads: int) -> Runner:
        """See `Format`."""
        network.load_state_dict(parse_safetensors(content))
        return without_gradients(network)


def export_graph(network: nn.Module, example: Pytree, *, opened: Opened = "batch") -> torch.export.ExportedProgram:
    """Return the exported graph of the network, with the dimensions `opened` left open.

    Raises:
        OpenBatchError: the batch is to be open, but the network's code depends on its size.
        ExportError: `torch.export` cannot follow the network's code.
    """
    dims: dict[int, Any] = {} if opened == "nothing" else {0: torch.export.Dim("batch", min=1)}
    if opened == "size":
        dims |= {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}  # the exporter finds the smallest valid size
    try:
        with quiet_exporters():
            args, kwargs = arguments(example)
            shapes = _shapes_by_argument(network, args, kwargs, dims) if dims else None
            return torch.export.export(network, args, kwargs, dynamic_shapes=shapes)
    except Exception as error:
        raise _refusal("torch.export", network, error, opened) from error


def save_program(
    program: torch.export.ExportedProgram,
    file: Path | io.BytesIO,
    network: nn.Module,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write an exported graph with `notes` as extra files.

    Raises:
        ExportError: inputs or outputs are of a class that an archive cannot hold, such as a namedtuple.
    """
    try:
        with quiet_exporters():
            torch.export.save(program, file, extra_files=dict(notes or {}))
    except NotImplementedError as error:
        raise ExportError(
            "a network to export must take and return tensors, tuples, lists and dicts of them; got others for "
            f"{type(network).__name__} ({first_line(error)}): return a plain tuple"
        ) from error


def _shapes_by_argument(
    network: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], dims: Mapping[int, Any]
) -> dict[str, Any]:
    """Return the open dimensions of every argument of `forward` by name; `*args` and `**kwargs` are nested."""
    signature = inspect.signature(network.forward)
    shapes: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            shapes[name] = tuple(dims for _ in value)
        else:
            shapes[name] = dict.fromkeys(value, dims) if kind is inspect.Parameter.VAR_KEYWORD else dims
    return shapes


class _InOrder(nn.Module):
    def __init__(self, network: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network = network
        self.names = names

    def forward(self, *values: torch.Tensor) -> Any:
        return self.network(**dict(zip(self.names, values, strict=True)))


def in_order(network: nn.Module, inputs: Pytree) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return a network that takes positional arguments only, and those arguments, for files without input names."""
    args, kwargs = arguments(inputs)
    return (_InOrder(network, tuple(kwargs)), tuple(kwargs.values())) if kwargs else (network, args)


def without_gradients(network: nn.Module) -> Runner:
    """Return the network as a function that runs without gradients."""

    def run(inputs: Pytree) -> Any:
        with torch.no_grad():
            return call_model(network, inputs)

    return run


def import_package(
    package: str, *, need: str = "ONNX needs the packages onnx, onnxscript and onnxruntime", extra: str = "onnx"
) -> ModuleType:
    """Import a package of an optional extra. `need` completes the error message: what the package is for.

    Raises:
        ExportError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(package)
    except Exception as error:  # a build for another machine raises other types than ImportError
        raise ExportError(
            f"{need}; importing {package} failed with {type(error).__name__}: {error}: run "
            f"`pip install 'bcnet[{extra}]'`"
        ) from error


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_OPERATOR = re.compile(r"No ONNX function found for <OpOverload\(op='([\w.]+)'")
_REASON = re.compile(r"Failure message: ([^\n]+)")
_LINE = re.compile(r"(File \S+, line \d+)")


def _causes(error: BaseException) -> Iterator[BaseException]:
    while (cause := error.__cause__ or error.__context__) is not None:
        yield cause
        error = cause


def _explain(causes: Sequence[str]) -> str:
    return next((f" ({found[1].strip()})" for found in map(_REASON.search, causes) if found), "")


def _refusal(what: str, network: nn.Module, error: Exception, opened: Opened) -> ExportError:
    text = _COLOURS.sub("", str(error))
    causes = [text, *(str(cause) for cause in _causes(error))]
    operator = next((found[1] for found in map(_OPERATOR.search, causes) if found), "")
    if operator:
        return ExportError(
            f"{what} has no form for {operator} as {type(network).__name__} uses it{_explain(causes)}: take --format "
            "safetensors, which holds no graph, or compute it by other operators in forward()"
        )
    if "Constraints violated" in text:
        line = next((found[1] for found in map(_LINE.search, causes) if found), "")
        where = f" in {line}" if line else ""
        return OpenBatchError(
            f"{type(network).__name__} takes the batch size of its example for a constant{where}; x.shape[0] for "
            "len(x) or a number leaves it open"
        )
    # The exporter's own text is general advice; the first line of the innermost error is the reason.
    reason = next((line.strip() for line in causes[-1].splitlines() if line.strip()), "")
    if opened == "batch":
        return OpenBatchError(f"{what} does not take {type(network).__name__} with any batch size: {reason}")
    line = next((found[1] for found in map(_LINE.search, causes[::-1]) if found), "")
    where = f" (in {line})" if line else ""
    return ExportError(
        f"{what} refuses {type(network).__name__} with {type(error).__name__}: {reason}{where}: take --format "
        "safetensors, which holds no graph, or change its code"
    )


def optimized_onnx(model: Any, notes: Mapping[str, str], opset: int | None = None) -> bytes:
    """Return the content of the ONNX file of a graph: batch norm folded, constants computed, `notes` in the metadata.

    The steps are those of `torch.onnx.export(optimize=True)`. Every exported and every timed file is made here. A graph
    of another version than `opset` is converted.

    Raises:
        ExportError: the graph cannot be converted.
    """
    ir = import_package("onnx_ir")
    optimizer = import_package("onnxscript.optimizer")
    fusions = import_package("onnxscript.rewriter.onnx_fusions")
    with quiet_exporters():
        graph = ir.serde.deserialize_model(model)
        optimizer.optimize_ir(graph)
        fusions.fuse(graph)
        return _plain_onnx(_of_opset(ir.serde.serialize_model(graph), opset), notes)


def _of_opset(model: Any, opset: int | None) -> Any:
    """Return the model in operator set `opset`.

    PyTorch's exporter writes at least version 18, so older ones are converted.
    """
    known = next(one.version for one in model.opset_import if not one.domain)
    if opset in (None, known):
        return model
    try:
        converted = import_package("onnx.version_converter").convert_version(model, opset)
        for node in converted.graph.node:  # older reductions lack this attribute; 0 is their behaviour
            kept = [a for a in node.attribute if a.name != "noop_with_empty_axes" or a.i]
            del node.attribute[:]
            node.attribute.extend(kept)
        import_package("onnx").checker.check_model(converted)
        return converted
    except ExportError:
        raise
    except Exception as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ExportError(
            f"ONNX's converter takes the network from opset {known} to no {opset}: {reason}: take a later one (--opset)"
        ) from error


def _use_flatten(graph: Any) -> None:
    """Replace reshapes from `(batch, ...)` to `(batch, n)` by Flatten, which stores no number of channels."""
    onnx = import_package("onnx")
    dims = {value.name: value.type.tensor_type.shape.dim for value in (*graph.input, *graph.value_info, *graph.output)}
    for node in graph.node:
        before, after = (dims.get(name) for name in (node.input[0] if node.input else "", node.output[0]))
        if node.op_type != "Reshape" or not before or after is None or len(after) != 2:
            continue
        if before[0].dim_param and before[0].dim_param == after[0].dim_param:
            node.CopyFrom(onnx.helper.make_node("Flatten", node.input[:1], node.output, node.name, axis=1))


def _plain_onnx(model: Any, notes: Mapping[str, str]) -> bytes:
    """Return the model with our `notes` and without PyTorch's debug notes, which name lines of the user's files."""
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    sizes = [dim.dim_param for dim in graph.input[0].type.tensor_type.shape.dim]
    names = {sizes[place]: name for place, name in _OPEN.items() if place < len(sizes) and sizes[place]}
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = re.sub(r"\b\w+\b", lambda word: names.get(word[0], word[0]), dim.dim_param)
    for key, text in notes.items():
        model.metadata_props.add(key=key, value=text)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """Silence deprecation warnings from PyTorch's exporters and the log of ONNX's intermediate representation."""
    log = logging.getLogger("onnx_ir")
    level = log.level
    log.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\..*")
        # Attributed to contextlib: recurrent layers, which keep a list of their weights.
        warnings.filterwarnings("ignore", message="The tensor attributes", category=UserWarning)
        try:
            yield
        finally:
            log.setLevel(level)
