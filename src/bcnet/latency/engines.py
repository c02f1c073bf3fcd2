"""Engines: what runs a network on the device, each given plain networks and timed from outside.

To add one, write an `Engine` and enter it into `ENGINES`, and its name into `bcnet.costs.latency.Engine`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import metadata
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar

import torch
from torch import nn

from bcnet.data.transfer import move
from bcnet.errors import ExportError
from bcnet.formats import Onnx, import_package, optimized_onnx, without_gradients
from bcnet.machine.defaults import place, runs_channels_last
from bcnet.machine.devices import device_name
from bcnet.machine.measure import (
    Inputs,
    executorch_call,
    litert_call,
    mnn_call,
    ncnn_call,
    onnxruntime_call,
    openvino_call,
)
from bcnet.machine.timing import Call
from bcnet.nests import Nest, arguments, channels_last, contiguous, count, join_batches, map_tensors
from bcnet.phone import ExecuTorch, ExecuTorchInt8, Ncnn, mnn
from bcnet.tflite.converter import Converter, is_installed
from bcnet.tflite.litert import check_installed

_CLOSE = 1e-3  # of the largest output, what a rewritten file may differ by


class Engine(ABC):
    """Runs networks that have the same graph and other widths."""

    name: ClassVar[str]
    package: ClassVar[str]
    extra: ClassVar[str] = ""  # of bcnet, that installs it

    @abstractmethod
    def prepare(self, network: nn.Module, inputs: Nest, threads: int) -> Call:
        """Return what runs a network in eval mode on `inputs`, once at each call.

        Raises:
            ExportError: the engine is not installed, or refuses the network.
        """

    def import_package(self, package: str) -> ModuleType:
        """A package of the engine.

        Raises:
            ExportError: it is not installed.
        """
        return import_package(package, need=f"the engine {self.name} is a package of its own", extra=self.extra)

    @property
    def version(self) -> str:
        """The engine's own.

        Raises:
            ExportError: it is not installed.
        """
        return str(self.import_package(self.package).__version__)

    @property
    def is_installed(self) -> bool:
        """Return whether networks can be prepared for it here."""
        try:
            return bool(self.version)
        except ExportError:
            return False

    @property
    def device(self) -> str:
        """Return what it runs on, as people call it."""
        return device_name("cpu")


class Torch(Engine):
    """PyTorch itself, in the memory format that convolutions like."""

    name = "torch"
    package = "torch"

    def prepare(self, network: nn.Module, inputs: Nest, threads: int) -> Call:
        """See `Engine`; torch's number of threads is for who calls to set."""
        if runs_channels_last(network, inputs):
            run = without_gradients(place(network, None, "channels_last"))
            placed = channels_last(inputs)
        else:
            run = without_gradients(place(network, None, "contiguous"))
            placed = contiguous(inputs)
        return lambda: run(placed)


class Cuda(Torch):
    """PyTorch on the first GPU; a call ends when the GPU has done all of it."""

    name = "cuda"

    def prepare(self, network: nn.Module, inputs: Nest, threads: int) -> Call:
        """See `Engine`."""
        self._check()
        run = super().prepare(network.cuda(), move(inputs, "cuda"), threads)

        def call() -> None:
            run()
            torch.cuda.synchronize()

        return call

    @property
    def device(self) -> str:
        """See `Engine`."""
        self._check()
        return device_name("cuda")

    def _check(self) -> None:
        if not torch.cuda.is_available():
            raise ExportError(
                "the engine cuda runs on a GPU, and torch finds none here: calibrate where there is one, and give the "
                "file as --latency-model"
            )


class OnnxGraph:
    """ONNX files of networks of one graph, as `Onnx.write` makes them: exported once, then with other weights put in.

    The first file that is made so is checked against its network; where a graph holds widths elsewhere than in its
    weights, every network is exported by itself.
    """

    def __init__(self) -> None:
        self._graph: Any = None
        self._rewritable: bool | None = None

    def write(self, network: nn.Module, inputs: Nest) -> bytes:
        """The file of a network."""
        if self._graph is not None and self._rewritable is not False:
            content = self._rewritten(network)
            if self._rewritable is None:
                self._rewritable = _same(content, network, inputs)
            if self._rewritable:
                return content
        example = inputs if count(inputs) > 1 else join_batches([inputs, inputs])
        graph = Onnx().graph(network, example)
        if self._graph is None:
            self._graph = graph
        return optimized_onnx(graph, {})

    def _rewritten(self, network: nn.Module) -> bytes:
        onnx = import_package("onnx")
        model = onnx.ModelProto()
        model.CopyFrom(self._graph)
        del model.graph.value_info[:]  # shapes of the network that was exported
        weights = network.state_dict()
        for initializer in model.graph.initializer:
            if initializer.name in weights:
                array = weights[initializer.name].detach().numpy()
                initializer.CopyFrom(onnx.numpy_helper.from_array(array, initializer.name))
        for node in model.graph.node:
            if node.op_type == "Conv" and node.input[1] in weights:
                channels, within = weights[node.input[1]].shape[:2]
                for attribute in node.attribute:
                    if attribute.name == "group" and attribute.i > 1 and within == 1:  # depthwise
                        attribute.i = channels
        return optimized_onnx(model, {})


def arrays(inputs: Nest) -> Inputs:
    """The inputs as an engine gets them."""
    args, kwargs = arguments(inputs)
    return {name: tensor.numpy() for name, tensor in kwargs.items()} or [tensor.numpy() for tensor in args]


def _same(content: bytes, network: nn.Module, inputs: Nest) -> bool:
    expected = without_gradients(network)(inputs)
    try:
        found = Onnx().runner(content, network, 1)(inputs)
    except Exception:  # a graph whose shapes do not fit, in the engine's own words
        return False
    if not isinstance(expected, torch.Tensor):
        return False
    return found.shape == expected.shape and bool((found - expected).abs().max() <= _CLOSE * expected.abs().max())


class FileEngine(Engine):
    """Runs files, those that are exported for it, which a bundle takes to another machine."""

    suffix: ClassVar[str]

    @abstractmethod
    def write(self, network: nn.Module, inputs: Nest) -> bytes:
        """Return the file of a network in eval mode.

        Raises:
            ExportError: it cannot be written.
        """


class OnnxEngine(FileEngine):
    """Runs ONNX files."""

    suffix = "onnx"

    def __init__(self) -> None:
        self._graph = OnnxGraph()

    def write(self, network: nn.Module, inputs: Nest) -> bytes:
        """See `FileEngine`."""
        return self._graph.write(network, inputs)


class OnnxRuntime(OnnxEngine):
    """ONNX Runtime on the CPU."""

    name = "onnxruntime"
    package = "onnxruntime"
    extra = "onnx"

    def prepare(self, network: nn.Module, inputs: Nest, threads: int) -> Call:
        """See `Engine`."""
        self.import_package(self.package)
        return onnxruntime_call(self.write(network, inputs), arrays(inputs), threads)


class OpenVino(OnnxEngine):
    """OpenVINO on the CPU."""

    name = "openvino"
    package = "openvino"
    extra = "openvino"

    def prepare(self, network: nn.Module, inputs: Nest, threads: int) -> Call:
        """See `Engine`."""
        self.import_package(self.package)
        return openvino_call(self.write(network, inputs), arrays(inputs), threads)


class LiteRt(FileEngine):
    """LiteRT on the CPU, by XNNPACK."""

    name = "litert"
    package = "ai_edge_litert"
    suffix = "tflite"

    def __init__(self) -> None:
        self._converter = Converter()

    @property
    def version(self) -> str:
        """See `Engine`."""
        check_installed()
        return metadata.version("ai-edge-litert")

    @property
    def is_installed(self) -> bool:
        """See `Engine`: what converts and what runs are two packages."""
        return super().is_installed and is_installed()

    def prepare(self, network: nn.Module, inputs: Nest, threads: int) -> Call:
        """See `Engine`."""
        check_installed()
        return litert_call(self.write(network, inputs), arrays(inputs), threads)

    def write(self, network: nn.Module, inputs: Nest) -> bytes:
        """See `FileEngine`."""
        return self._converter.convert(network, inputs)


class LiteRtInt8(LiteRt):
    """LiteRT in int8; the ranges that it is quantised by, those of the one batch here, do not move its time."""

    name = "litert:int8"

    def write(self, network: nn.Module, inputs: Nest) -> bytes:
        """See `FileEngine`."""
        return self._converter.convert(network, inputs, _as_sample(inputs))


class NcnnEngine(FileEngine):
    """ncnn on the CPU, in float32, one input at once."""

    name = "ncnn"
    package = "ncnn"
    extra = "ncnn"
    suffix = Ncnn.suffix

    @property
    def version(self) -> str:
        """See `Engine`."""
        self.import_package("pnnx")  # which writes what ncnn runs
        return super().version

    def prepare(self, network: nn.Module, inputs: Nest, threads: int) -> Call:
        """See `Engine`."""
        self.import_package(self.package)
        return ncnn_call(self.write(network, inputs), arrays(inputs), threads)

    def write(self, network: nn.Module, inputs: Nest) -> bytes:
        """See `FileEngine`."""
        return Ncnn().write(network, inputs, {})


class MnnEngine(OnnxEngine):
    """MNN on the CPU, in float32."""

    name = "mnn"
    package = "MNN"
    extra = "mnn"
    suffix = mnn.Mnn.suffix

    @property
    def version(self) -> str:
        """See `Engine`."""
        mnn.check_installed()
        return metadata.version("MNN")

    def prepare(self, network: nn.Module, inputs: Nest, threads: int) -> Call:
        """See `Engine`."""
        mnn.check_installed()
        return mnn_call(self.write(network, inputs), arrays(inputs), threads)

    def write(self, network: nn.Module, inputs: Nest) -> bytes:
        """See `FileEngine`."""
        return mnn.mnn_of(super().write(network, inputs), type(network).__name__)


class ExecuTorchEngine(FileEngine):
    """ExecuTorch on the CPU, by XNNPACK."""

    name = "executorch"
    package = "executorch"
    extra = "executorch"
    suffix = ExecuTorch.suffix

    @property
    def version(self) -> str:
        """See `Engine`."""
        self.import_package(self.package)
        return metadata.version("executorch")

    def prepare(self, network: nn.Module, inputs: Nest, threads: int) -> Call:
        """See `Engine`."""
        return executorch_call(self.write(network, inputs), arrays(inputs), threads)

    def write(self, network: nn.Module, inputs: Nest) -> bytes:
        """See `FileEngine`."""
        return ExecuTorch().write(network, inputs, {})


class ExecuTorchInt8Engine(ExecuTorchEngine):
    """ExecuTorch in int8, quantised as for LiteRT."""

    name = "executorch:int8"

    def write(self, network: nn.Module, inputs: Nest) -> bytes:
        """See `FileEngine`."""
        return ExecuTorchInt8(_as_sample(inputs)).write(network, inputs, {})


def _as_sample(inputs: Nest) -> Nest:
    """A batch as the only sample, `(1, batch, ...)`."""
    return map_tensors(lambda tensor: tensor.unsqueeze(0), inputs)


_KINDS: tuple[type[Engine], ...] = (
    *(Torch, Cuda, OnnxRuntime, OpenVino, LiteRt, LiteRtInt8),
    *(NcnnEngine, MnnEngine, ExecuTorchEngine, ExecuTorchInt8Engine),
)
ENGINES: Mapping[str, type[Engine]] = MappingProxyType({kind.name: kind for kind in _KINDS})


def engine_of(name: str) -> Engine:
    """A new engine of this name.

    Raises:
        ExportError: there is none, or times of it come from elsewhere.
    """
    if name == "other":
        raise ExportError(
            "networks on another device are timed there: give its calibration as --latency-model, made by `bcnet "
            "calibrate MODEL --from times.csv`"
        )
    if name not in ENGINES:
        raise ExportError(f"an engine is one of {', '.join(ENGINES)}; got {name!r}")
    return ENGINES[name]()
