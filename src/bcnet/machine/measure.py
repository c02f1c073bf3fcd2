"""Time the networks in this folder on this device: the script of `bcnet calibrate --bundle`.

It needs numpy and the engine named in bundle.json, a package of the same name (litert is `ai-edge-litert`, mnn is
`MNN`; executorch also needs torch; a suffix ":int8" describes the files only):

    python measure.py

It writes times.csv, which `bcnet calibrate MODEL --from times.csv --out device.json` reads. Networks are timed in
turns, round by round, and each round is divided by the machine's slowness in it.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib
import io
import json
import os
import platform
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Union

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Inputs = Union[Sequence[npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]  # noqa: UP007 (Python 3.9)
Call = Callable[[], object]

ROUNDS = 30  # rounds in which every network is timed by several calls
ROUND_SECONDS = 4e-3  # of calls between two readings of the clock
BUSY = 0.1  # noise above which the machine is too busy
QUIET = 20  # percentile of the rounds' pace that counts as the machine's own


def without_drift(seconds: FloatArray) -> FloatArray:
    """Remove the machine's drift from times, `(networks, rounds)` -> same shape.

    A round's pace is the median over networks of their time in it relative to their usual time.
    """
    usual = np.median(seconds, axis=1, keepdims=True)
    pace = np.median(seconds / usual, axis=0)
    return np.asarray(seconds / (pace / np.percentile(pace, QUIET)))


def median_and_noise(seconds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return each network's median time, and the relative difference of alternate rounds, from `(networks, rounds)`."""
    steady = without_drift(seconds)
    even, odd = (np.median(steady[:, start::2], axis=1) for start in (0, 1))
    return np.asarray(np.median(steady, axis=1)), np.abs(even / odd - 1)


def onnxruntime_call(model: Path | bytes, inputs: Inputs, threads: int) -> Call:
    """Return a function that runs an ONNX file on ONNX Runtime; `inputs` are in the file's order, or by name."""
    ort: Any = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # otherwise a session's threads spin on the core while another one is timed
    options.add_session_config_entry("session.force_spinning_stop", "1")
    content = model if isinstance(model, bytes) else str(model)
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    feed = inputs if isinstance(inputs, dict) else dict(zip(names, inputs))  # noqa: B905 (Python 3.9)
    return lambda: session.run(None, feed)


def openvino_call(model: Path | bytes, inputs: Inputs, threads: int) -> Call:
    """Return a function that runs an ONNX file on OpenVINO; `inputs` as above."""
    openvino: Any = importlib.import_module("openvino")
    core = openvino.Core()
    graph = core.read_model(model if isinstance(model, bytes) else str(model))
    names = [value.get_any_name() for value in graph.inputs]
    feed = inputs if isinstance(inputs, dict) else dict(zip(names, inputs))  # noqa: B905 (Python 3.9)
    graph.reshape({name: list(array.shape) for name, array in feed.items()})
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(graph, "CPU", settings).create_infer_request()
    return lambda: request.infer(feed)


def litert_call(model: Path | bytes, inputs: Inputs, threads: int) -> Call:
    """Return a function that runs a .tflite file on LiteRT; `inputs` as above."""
    litert: Any = importlib.import_module("ai_edge_litert.interpreter")
    given = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
    interpreter = litert.Interpreter(num_threads=threads, **given)
    interpreter.allocate_tensors()
    # The file has its own order of inputs, and 32-bit integers whatever the network has.
    details = interpreter.get_signature_runner().get_input_details()
    named = inputs if isinstance(inputs, dict) else {f"args_{n}": value for n, value in enumerate(inputs)}
    feed = [(details[name]["index"], to_stored(value, details[name])) for name, value in named.items()]
    places = [detail["index"] for detail in interpreter.get_output_details()]

    def call() -> list[npt.NDArray[Any]]:
        for place, value in feed:
            interpreter.set_tensor(place, value)
        interpreter.invoke()
        return [interpreter.get_tensor(place) for place in places]

    return call


def to_stored(array: npt.NDArray[Any], detail: dict[str, Any]) -> npt.NDArray[Any]:
    """Return an input as stored in a .tflite file, int8 by its scale; `detail` is LiteRT's description."""
    scale, zero = detail["quantization"]
    if not scale:
        return np.ascontiguousarray(array, dtype=detail["dtype"])
    return np.asarray(np.clip(np.rint(array / scale) + zero, -128, 127).astype(detail["dtype"]))


class NcnnFile:
    """A zip of ncnn's two files, computed in float32: by default ncnn rounds weights to float16."""

    def __init__(self, model: Path | bytes, threads: int) -> None:
        self._ncnn: Any = importlib.import_module("ncnn")
        self._network = self._ncnn.Net()
        self._network.opt.num_threads = threads
        for option in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic"):
            setattr(self._network.opt, option, False)
        content = io.BytesIO(model) if isinstance(model, bytes) else model
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(content) as parts:
            param, weights = (parts.extract(f"network.ncnn.{suffix}", folder) for suffix in ("param", "bin"))
            if self._network.load_param(param) or self._network.load_model(weights):
                raise ValueError("ncnn refuses the file: it has a layer that this version does not know")
        # pnnx numbers inputs and outputs (in0, out1) in the network's order; ncnn lists them in the order of its file.
        self._inputs, self._outputs = (
            sorted(names, key=_number) for names in (self._network.input_names(), self._network.output_names())
        )

    def convert(self, inputs: Sequence[npt.NDArray[Any]]) -> list[Any]:
        """Convert inputs `(1, ...)` in the network's order to ncnn's matrices."""
        return [self._ncnn.Mat(np.ascontiguousarray(one[0], dtype=np.float32)).clone() for one in inputs]

    def __call__(self, matrices: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """Run it once; outputs lack the batch dimension."""
        extractor = self._network.create_extractor()
        for name, matrix in zip(self._inputs, matrices):  # noqa: B905 (Python 3.9)
            extractor.input(name, matrix)
        return [np.array(extractor.extract(name)[1]) for name in self._outputs]


def _number(name: str) -> int:
    return int("".join(character for character in name if character.isdigit()) or 0)


def ncnn_call(model: Path | bytes, inputs: Inputs, threads: int) -> Call:
    """Return a function that runs a zip of ncnn's files; `inputs` are in the network's order."""
    file = NcnnFile(model, threads)
    matrices = file.convert(_in_order(inputs))
    return lambda: file(matrices)


class MnnFile:
    """An MNN file, computed in float32 on arrays by name or in order."""

    def __init__(self, model: Path | bytes, threads: int) -> None:
        with suppress_output():
            engine: Any = importlib.import_module("MNN.nn")
            self._expr: Any = importlib.import_module("MNN.expr")
            settings = {"backend": "CPU", "numThread": threads, "precision": "high"}
            self._manager = engine.create_runtime_manager((settings,))
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "network.mnn" if isinstance(model, bytes) else model
                if isinstance(model, bytes):
                    path.write_bytes(model)
                try:
                    self._network = engine.load_module_from_file(str(path), [], [], runtime_manager=self._manager)
                except SystemError as error:  # how this module reports a file that it cannot load
                    raise ValueError("MNN refuses the file: its converter may have left layers out") from error
        self._names = self._network.get_info()["inputNames"]

    def convert(self, inputs: Inputs) -> list[Any]:
        """Convert arrays to MNN's variables, in the file's order."""
        ordered = [inputs[name] for name in self._names] if isinstance(inputs, dict) else inputs
        kinds = {"f": (np.float32, self._expr.float), "u": (np.uint8, self._expr.uint8)}
        made = []
        for array in ordered:
            dtype, kind = kinds.get(array.dtype.kind, (np.int32, self._expr.int))
            made.append(self._expr.const(np.ascontiguousarray(array, dtype), array.shape, self._expr.NCHW, kind))
        return made

    def __call__(self, variables: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """Run it once."""
        found = self._network.forward(variables)
        outputs = found if isinstance(found, (list, tuple)) else [found]
        if not outputs:  # it prints the reason
            raise ValueError("MNN refuses the inputs: give those of the shapes that the file was made for")
        return [np.array(self._expr.convert(output, self._expr.NCHW).read()) for output in outputs]


def mnn_call(model: Path | bytes, inputs: Inputs, threads: int) -> Call:
    """Return a function that runs an MNN file; `inputs` are in the file's order, or by name."""
    file = MnnFile(model, threads)
    variables = file.convert(inputs)
    return lambda: file(variables)


@contextlib.contextmanager
def suppress_output() -> Iterator[None]:
    """Suppress what C++ code prints about the processor."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 1)
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


class ExecuTorchFile:
    """A .pte file that runs on tensors in order; the number of threads is shared by all loaded files."""

    def __init__(self, model: Path | bytes, threads: int) -> None:
        # The method reads from content and program, but keeps neither alive.
        self._content = model if isinstance(model, bytes) else model.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "This API is experimental"
            runtime: Any = importlib.import_module("executorch.runtime")
            pool: Any = importlib.import_module("executorch.extension.pybindings.portable_lib")
            if pool._threadpool_get_thread_count() != threads:
                pool._unsafe_reset_threadpool(threads)
            self._program = runtime.Runtime.get().load_program(self._content)
            self._method = self._program.load_method("forward")

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run it once."""
        outputs: Sequence[Any] = self._method.execute(inputs)
        return outputs


def executorch_call(model: Path | bytes, inputs: Inputs, threads: int) -> Call:
    """Return a function that runs a .pte file; `inputs` as for ncnn."""
    torch: Any = importlib.import_module("torch")
    file = ExecuTorchFile(model, threads)
    feed = [torch.from_numpy(np.ascontiguousarray(array)) for array in _in_order(inputs)]
    return lambda: [output.numpy() for output in file(feed)]


def _in_order(inputs: Inputs) -> Sequence[npt.NDArray[Any]]:
    return list(inputs.values()) if isinstance(inputs, dict) else inputs


CALLS = {
    "onnxruntime": onnxruntime_call,
    "openvino": openvino_call,
    "litert": litert_call,
    "litert:int8": litert_call,
    "ncnn": ncnn_call,
    "mnn": mnn_call,
    "executorch": executorch_call,
    "executorch:int8": executorch_call,
}


def times(calls: Sequence[Call], rounds: int) -> FloatArray:
    """Return seconds per call, in turns with rotating order, `(calls, rounds)`."""
    for call in calls:
        call()
    repeats = [_repeats(call) for call in calls]
    found = np.empty((len(calls), 1 + rounds))
    for number in range(1 + rounds):
        for n in np.roll(np.arange(len(calls)), -number).tolist():
            # An untimed call comes first: deployed networks run with warm caches.
            calls[n]()
            found[n, number] = _seconds(calls[n], repeats[n])
    return found[:, 1:]  # the first round is a warm-up


def _repeats(call: Call) -> int:
    """Return the number of calls that take a few milliseconds, since clock and loop cost microseconds."""
    quickest = min(_seconds(call, 1) for _ in range(3))
    return max(1, round(ROUND_SECONDS / max(quickest, 1e-7)))


def _seconds(call: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def device(engine: str) -> str:
    """Describe the device: processor, cores, system and engine."""
    processor = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Hardware"))]
        processor = named[0] if named else processor
    name = engine.partition(":")[0]
    package = importlib.import_module({"litert": "ai_edge_litert", "mnn": "MNN"}.get(name, name))
    version = getattr(package, "__version__", None) or metadata.version(package.__name__)
    return f"{processor}, {os.cpu_count()} cores, {platform.machine()}, {platform.system()}, {engine} {version}"


def draw_inputs(facts: dict[str, Any]) -> Inputs:
    """Return random inputs with the bundle's shapes and types, in order, or by name if it has names."""
    generator = np.random.default_rng(0)
    arrays = {}
    for name, fact in facts.items():
        kind = np.dtype(fact["dtype"])
        floats = generator.random(fact["shape"]) * (1 if kind.kind == "f" else fact["high"])
        arrays[name.lstrip(".")] = floats.astype(kind)
    return arrays if any(name.startswith(".") for name in facts) else list(arrays.values())


def main() -> int:
    """Measure, and write the CSV."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=here / "times.csv", help="the file to write")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="times that each network is timed")
    parser.add_argument("--noise", type=float, default=BUSY, help="how far times taken again may lie apart, a share")
    arguments = parser.parse_args()
    bundle = json.loads((here / "bundle.json").read_text(encoding="utf-8"))
    engine = bundle["engine"]
    threads = bundle["threads"]
    if arguments.rounds < 4:
        parser.error(f"a network is timed in at least 4 rounds; got {arguments.rounds}")
    inputs = draw_inputs(bundle["inputs"])
    batch = next(iter(bundle["inputs"].values()))["shape"][0]
    networks = bundle["networks"]
    print(f"{len(networks)} networks on {engine}, {threads} thread{'' if threads == 1 else 's'}", flush=True)
    calls = [CALLS[engine](here / network["file"], inputs, threads) for network in networks]
    taken, noise = median_and_noise(times(calls, arguments.rounds))
    typical = float(np.median(noise))
    if typical > arguments.noise:
        print(f"repeated times differ by {typical:.0%}: the machine is too busy; try again", file=sys.stderr)
        return 1
    unfinished = arguments.out.with_name(arguments.out.name + ".tmp")
    with open(unfinished, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("widths", "milliseconds", "noise", "engine", "threads", "batch", "device"))
        where = (engine, threads, batch, device(engine))
        for network, seconds, apart in zip(networks, taken, noise):  # noqa: B905 (the script runs on Python 3.9)
            widths = " ".join(map(str, network["widths"]))
            rows.writerow((widths, f"{1e3 * seconds:.6g}", f"{apart:.4f}", *where))
    os.replace(unfinished, arguments.out)
    print(f"wrote {arguments.out}; repeated times differ by {typical:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
