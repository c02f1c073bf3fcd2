"""Engines that run networks on the device.

To add one, subclass `Engine`, and add it to `ENGINES` and its name to `bcnet.costs.latency.Engine`.
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
from bcnet.phone import ExecuTorch, ExecuTorchInt8, Ncnn, mnn
from bcnet.pytree import Pytree, arguments, channels_last, concat_batches, contiguous, count, map_tensors
from bcnet.tflite.converter import Converter, is_installed
from bcnet.tflite.litert import check_installed

_CLOSE = 1e-3  # largest difference of a rewritten file, as a share of the largest output


class Engine(ABC):
    """Runs networks with the same graph and different widths."""

    name: ClassVar[str]
    package: ClassVar[str]
    extra: ClassVar[str] = ""  # the extra of bcnet that installs it

    @abstractmethod
    def prepare(self, network: nn.Module, inputs: Pytree, threads: int) -> Call:
        """Return a function that runs a network in eval mode on `inputs` once per call.

        Raises:
            ExportError: the engine is not installed, or refuses the network.
        """

    def import_package(self, package: str) -> ModuleType:
        """Import a package of the engine.

        Raises:
            ExportError: it is not installed.
        """
        return import_package(package, need=f"the engine {self.name} is a package of its own", extra=self.extra)

    @property
    def version(self) -> str:
        """Return the engine's version.

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
        """Return the name of the hardware it uses."""
        return device_name("cpu")


class Torch(Engine):
    """PyTorch, in the memory format that is best for convolutions."""

    name = "torch"
    package = "torch"

    def prepare(self, network: nn.Module, inputs: Pytree, threads: int) -> Call:
        """See `Engine`; the caller sets torch's number of threads."""
        if runs_channels_last(network, inputs):
            run = without_gradients(place(network, None, "channels_last"))
            placed = channels_last(inputs)
        else:
            run = without_gradients(place(network, None, "contiguous"))
            placed = contiguous(inputs)
        return lambda: run(placed)


class Cuda(Torch):
    """PyTorch on the first GPU; a call waits until the GPU has finished."""

    name = "cuda"

    def prepare(self, network: nn.Module, inputs: Pytree, threads: int) -> Call:
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
    """ONNX files of networks with the same graph: exported once, then rewritten with other weights.

    The first rewritten file is compared with its network. If the graph depends on widths elsewhere than in its weights,
    each network is exported on its own.

    """

    def __init__(self) -> None:
        self._graph: Any = None
        self._rewritable: bool | None = None

    def write(self, network: nn.Module, inputs: Pytree) -> bytes:
        """Return the file of a network."""
        if self._graph is not None and self._rewritable is not False:
            content = self._rewritten(network)
            if self._rewritable is None:
                self._rewritable = _computes_same(content, network, inputs)
            if self._rewritable:
                return content
        example = inputs if count(inputs) > 1 else concat_batches([inputs, inputs])
        graph = Onnx().graph(network, example)
        if self._graph is None:
            self._graph = graph
        return optimized_onnx(graph, {})

    def _rewritten(self, network: nn.Module) -> bytes:
        onnx = import_package("onnx")
        model = onnx.ModelProto()
        model.CopyFrom(self._graph)
        del model.graph.value_info[:]  # shapes of the exported network
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


def arrays(inputs: Pytree) -> Inputs:
    """Return the inputs as arrays for an engine."""
    args, kwargs = arguments(inputs)
    return {name: tensor.numpy() for name, tensor in kwargs.items()} or [tensor.numpy() for tensor in args]


def _computes_same(content: bytes, network: nn.Module, inputs: Pytree) -> bool:
    expected = without_gradients(network)(inputs)
    try:
        found = Onnx().runner(content, network, 1)(inputs)
    except Exception:  # shapes that do not match raise the engine's own errors
        return False
    if not isinstance(expected, torch.Tensor):
        return False
    return found.shape == expected.shape and bool((found - expected).abs().max() <= _CLOSE * expected.abs().max())


class FileEngine(Engine):
    """Runs exported files, which a bundle can take to another machine."""

    suffix: ClassVar[str]

    @abstractmethod
    def write(self, network: nn.Module, inputs: Pytree) -> bytes:
        """Return the file of a network in eval mode.

        Raises:
            ExportError: it cannot be written.
        """


class OnnxEngine(FileEngine):
    """Runs ONNX files."""

    suffix = "onnx"

    def __init__(self) -> None:
        self._graph = OnnxGraph()

    def write(self, network: nn.Module, inputs: Pytree) -> bytes:
        """See `FileEngine`."""
        return self._graph.write(network, inputs)


class OnnxRuntime(OnnxEngine):
    """ONNX Runtime on the CPU."""

    name = "onnxruntime"
    package = "onnxruntime"
    extra = "onnx"

    def prepare(self, network: nn.Module, inputs: Pytree, threads: int) -> Call:
        """See `Engine`."""
        self.import_package(self.package)
        return onnxruntime_call(self.write(network, inputs), arrays(inputs), threads)


class OpenVino(OnnxEngine):
    """OpenVINO on the CPU."""

    name = "openvino"
    package = "openvino"
    extra = "openvino"

    def prepare(self, network: nn.Module, inputs: Pytree, threads: int) -> Call:
        """See `Engine`."""
        self.import_package(self.package)
        return openvino_call(self.write(network, inputs), arrays(inputs), threads)


class LiteRt(FileEngine):
    """LiteRT on the CPU, with XNNPACK."""

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
        """See `Engine`; it needs a converter and a runtime."""
        return super().is_installed and is_installed()

    def prepare(self, network: nn.Module, inputs: Pytree, threads: int) -> Call:
        """See `Engine`."""
        check_installed()
        return litert_call(self.write(network, inputs), arrays(inputs), threads)

    def write(self, network: nn.Module, inputs: Pytree) -> bytes:
        """See `FileEngine`."""
        return self._converter.convert(network, inputs)


class LiteRtInt8(LiteRt):
    """LiteRT in int8. Ranges are taken from a single batch, since they do not affect the time."""

    name = "litert:int8"

    def write(self, network: nn.Module, inputs: Pytree) -> bytes:
        """See `FileEngine`."""
        return self._converter.convert(network, inputs, _as_sample(inputs))


class NcnnEngine(FileEngine):
    """ncnn on the CPU in float32, with one input at a time."""

    name = "ncnn"
    package = "ncnn"
    extra = "ncnn"
    suffix = Ncnn.suffix

    @property
    def version(self) -> str:
        """See `Engine`."""
        self.import_package("pnnx")  # it writes ncnn's files
        return super().version

    def prepare(self, network: nn.Module, inputs: Pytree, threads: int) -> Call:
        """See `Engine`."""
        self.import_package(self.package)
        return ncnn_call(self.write(network, inputs), arrays(inputs), threads)

    def write(self, network: nn.Module, inputs: Pytree) -> bytes:
        """See `FileEngine`."""
        return Ncnn().write(network, inputs, {})


class MnnEngine(OnnxEngine):
    """MNN on the CPU in float32."""

    name = "mnn"
    package = "MNN"
    extra = "mnn"
    suffix = mnn.Mnn.suffix

    @property
    def version(self) -> str:
        """See `Engine`."""
        mnn.check_installed()
        return metadata.version("MNN")

    def prepare(self, network: nn.Module, inputs: Pytree, threads: int) -> Call:
        """See `Engine`."""
        mnn.check_installed()
        return mnn_call(self.write(network, inputs), arrays(inputs), threads)

    def write(self, network: nn.Module, inputs: Pytree) -> bytes:
        """See `FileEngine`."""
        return mnn.mnn_of(super().write(network, inputs), type(network).__name__)


class ExecuTorchEngine(FileEngine):
    """ExecuTorch on the CPU, with XNNPACK."""

    name = "executorch"
    package = "executorch"
    extra = "executorch"
    suffix = ExecuTorch.suffix

    @property
    def version(self) -> str:
        """See `Engine`."""
        self.import_package(self.package)
        return metadata.version("executorch")

    def prepare(self, network: nn.Module, inputs: Pytree, threads: int) -> Call:
        """See `Engine`."""
        return executorch_call(self.write(network, inputs), arrays(inputs), threads)

    def write(self, network: nn.Module, inputs: Pytree) -> bytes:
        """See `FileEngine`."""
        return ExecuTorch().write(network, inputs, {})


class ExecuTorchInt8Engine(ExecuTorchEngine):
    """ExecuTorch in int8, quantised as for LiteRT."""

    name = "executorch:int8"

    def write(self, network: nn.Module, inputs: Pytree) -> bytes:
        """See `FileEngine`."""
        return ExecuTorchInt8(_as_sample(inputs)).write(network, inputs, {})


def _as_sample(inputs: Pytree) -> Pytree:
    """Return a batch as a single sample, `(1, batch, ...)`."""
    return map_tensors(lambda tensor: tensor.unsqueeze(0), inputs)


_KINDS: tuple[type[Engine], ...] = (
    *(Torch, Cuda, OnnxRuntime, OpenVino, LiteRt, LiteRtInt8),
    *(NcnnEngine, MnnEngine, ExecuTorchEngine, ExecuTorchInt8Engine),
)
ENGINES: Mapping[str, type[Engine]] = MappingProxyType({kind.name: kind for kind in _KINDS})


def engine_of(name: str) -> Engine:
    """Return a new engine by name.

    Raises:
        ExportError: an unknown engine, or one whose times are measured elsewhere.
    """
    if name == "other":
        raise ExportError(
            "networks on another device are timed there: give its calibration as --latency-model, made by `bcnet "
            "calibrate MODEL --from times.csv`"
        )
    if name not in ENGINES:
        raise ExportError(f"an engine must be one of {', '.join(ENGINES)}; got {name!r}")
    return ENGINES[name]()
