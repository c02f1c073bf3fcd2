"""Model card: a page of Markdown about a network, with the figures of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bcnet.methods import Random, TrainingsMethod
from bcnet.run.finished import FinishedRun
from bcnet.run.inputs import Input, InputFacts
from bcnet.run.result import RunResult
from bcnet.run.settings import Settings

_SHOWN = 20  # class names
_USE = {
    "onnx": "import onnxruntime\n\nsession = onnxruntime.InferenceSession({file!r})\n"
    '(outputs,) = session.run(None, {{"images": images}})  # a float32 array',
    "pt2": "import torch\n\nnetwork = torch.export.load({file!r}).module()  # may unpickle: load what you trust\n"
    "outputs = network(images)",
    "safetensors": "import bcnet\n\nnetwork = bcnet.load({file!r}, make_the_full_network)\noutputs = network(images)",
    "litert": "from ai_edge_litert.interpreter import Interpreter\n\ninterpreter = Interpreter({file!r})\n"
    "interpreter.allocate_tensors()\n(into,), (out, *_) = interpreter.get_input_details(), "
    "interpreter.get_output_details()\n"
    'interpreter.set_tensor(into["index"], image)  # a float32 array, one image\ninterpreter.invoke()\n'
    'outputs = interpreter.get_tensor(out["index"])',
    "litert:int8": "import numpy as np\nfrom ai_edge_litert.interpreter import Interpreter\n\n"
    "interpreter = Interpreter({file!r})\ninterpreter.allocate_tensors()\n"
    "(into,), (out, *_) = interpreter.get_input_details(), interpreter.get_output_details()\n"
    'scale, zero = into["quantization"]\n'
    'interpreter.set_tensor(into["index"], np.clip(np.rint(image / scale) + zero, -128, 127).astype(np.int8))\n'
    'interpreter.invoke()\nscale, zero = out["quantization"]\n'
    'outputs = scale * (interpreter.get_tensor(out["index"]).astype(np.float32) - zero)',
    "ncnn": "import ncnn\nimport numpy as np\n\nnetwork = ncnn.Net()  # unzip {file} first\n"
    'network.load_param("network.ncnn.param")\nnetwork.load_model("network.ncnn.bin")\n'
    "extractor = network.create_extractor()\n"
    'extractor.input("in0", ncnn.Mat(image))  # a float32 array, one image without its batch dimension\n'
    'outputs = np.array(extractor.extract("out0")[1])',
    "mnn": "import MNN.expr as expr\nimport MNN.nn as nn\nimport numpy as np\n\n"
    "network = nn.load_module_from_file({file!r}, [], [])\n"
    "(outputs,) = network.forward([expr.const(images, images.shape, expr.NCHW)])  # a float32 array, any batch\n"
    "outputs = np.array(expr.convert(outputs, expr.NCHW).read())",
    **dict.fromkeys(
        ("executorch", "executorch:int8"),
        "from executorch.runtime import Runtime\n\n"
        'method = Runtime.get().load_program({file!r}).load_method("forward")\n'
        "outputs, *_ = method.execute([image])  # a float32 tensor, one image",
    ),
}
_LABELS = {"original": "original", "uniform": "Uniform (all layers narrowed alike)", "searched": "**this network**"}


def model_card(finished: FinishedRun, exports: Sequence[Mapping[str, Any]]) -> str:
    """Return the card as Markdown, with the front matter that the Hugging Face hub reads.

    `exports` are the files written so far, as in `exports.json`. Of local folders only the last part is named.

    """
    result = finished.result
    parts = [
        _front_matter(),
        f"# {result.model}, narrowed by BCNet on {data_name(result.data)}",
        _summary(result),
        _results(result),
        _input(finished),
        _files(finished, exports),
        _use(exports),
        _widths(result),
        _describe_training(finished),
        _limits(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def data_name(name: str) -> str:
    """Return the name of a data set without local folders."""
    kind, colon, place = name.partition(":")
    return f"{kind}:{place.rstrip('/').rpartition('/')[2]}" if colon and kind != "hf" else name


def _front_matter() -> str:
    return "---\nlibrary_name: pytorch\npipeline_tag: image-classification\ntags:\n- bcnet\n- channel-pruning\n---"


def _summary(result: RunResult) -> str:
    searched = result.networks["searched"]
    metric = result.headline
    return (
        f"{searched.macs_ratio:.1%} of the multiply-adds and "
        f"{searched.params / result.networks['original'].params:.1%} of the "
        f"parameters of the original network, {metric.name} {metric.text(result.value('searched'))} against "
        f"{metric.text(result.value('original'))}. How many channels each layer keeps was searched under a "
        f"budget of {result.budget.given} (BCNet, CVPR 2021)."
    )


def _results(result: RunResult) -> str:
    metric = result.headline
    rows = [
        f"| {_LABELS[name]} | {n.macs:,} | {n.macs_ratio:.3f} | {n.params:,} | {result.value(name):.{metric.digits}f} |"
        for name, n in result.networks.items()
    ]
    images = result.networks["searched"].test_images
    return "\n".join(
        [
            "## Results",
            "",
            f"| network | MACs | ratio | parameters | {metric.column} |",
            "|---|---|---|---|---|",
            *rows,
            "",
            f"All three were trained alike and tested once, on {images:,} images.",
        ]
    )


def _describe_inputs(facts: InputFacts) -> str:
    """Describe the inputs of `forward`."""
    if isinstance(facts.inputs, Input):
        return facts.inputs.text.capitalize()
    if isinstance(facts.inputs, tuple):
        return f"{len(facts.inputs)} arguments in this order: {'; '.join(one.text for one in facts.inputs)}"
    return f"Keyword arguments: {'; '.join(f'`{name}`, {one.text}' for name, one in facts.inputs.items())}"


def _input(finished: FinishedRun) -> str:
    lines = [f"## Input and output\n\n{_describe_inputs(finished.input)}, any batch size."]
    normaliser = finished.input.normaliser
    if normaliser is None:
        prepared = finished.input.preparation
        lines.append(
            f"Preparation of inputs: {prepared}."
            if prepared
            else "The inputs are prepared as the training loader prepared them."
        )
    else:
        if finished.input.preparation:
            lines.append(
                f"Preparation of images: {finished.input.preparation}. Another resizing may change the accuracy."
            )
        mean, std = (", ".join(f"{value:.4f}" for value in values) for values in (normaliser.mean, normaliser.std))
        lines.append(
            f"The network takes normalised images: bytes / 255, then `(x - mean) / std` for each channel, with mean "
            f"({mean}) and std ({std}). A file exported with its normalisation takes bytes / 255, or the bytes."
        )
    names = finished.input.class_names
    if not names:
        lines.append(f"The output is what the task {finished.result.task.name} takes.")
        return "\n".join(lines)
    shown = ", ".join(f"{name}" for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    lines.append(f"The output is one logit for each of {len(names)} classes, in this order: {shown}.")
    return "\n".join(lines)


def _files(finished: FinishedRun, exports: Sequence[Mapping[str, Any]]) -> str:
    if not exports:
        return ""
    head = "| file | takes | bytes | original's bytes | checked with | largest difference | one image (ms) |"
    rows = [_file_row(export) for export in exports]
    threads = ", ".join(sorted({f"{export['threads']}" for export in exports}))
    note = (
        "Differences are from PyTorch's outputs, relative to the largest; of int8 files the root mean square on "
        "held-out inputs, relative to the outputs'. Times are medians with quartiles, "
        f"{finished.result.device.name}, CPU threads: {threads}."
    )
    tests = []
    for export in exports:
        if not export.get("tests"):
            continue
        arena = "" if export["arena"] is None else f"; tflite-micro takes {export['arena']:,} bytes of memory for it"
        tests.append(
            f"In int8 the network reaches {export['tests']['file']:.4g} on the test data, in PyTorch "
            f"{export['tests']['PyTorch']:.4g} ({finished.result.headline.name}){arena}."
        )
    return "\n".join(["## Files", "", head, "|---|---|---|---|---|---|---|", *rows, "", note, *tests])


def _file_row(export: Mapping[str, Any]) -> str:
    takes = f"{export['takes']}{' of any height and width' if export['open_size'] else ''}"
    if export.get("from_size"):
        takes += " of {}x{} pixels (height x width), resized inside".format(*export["from_size"])
    if len(export["batches"]) == 1:
        takes += f", {export['batches'][0]} at once"
    time = export["milliseconds"][export["runtime"]]
    return (
        f"| `{export['path']}` | {takes} | {export['size']:,} | {export['original_size']:,} | {export['runtime']} | "
        f"{export['difference']:.1e} | {time['median']:.3g} ({time['low']:.3g} to {time['high']:.3g}) |"
    )


def _use(exports: Sequence[Mapping[str, Any]]) -> str:
    blocks = [_USE[export["format"]].format(file=export["path"].rpartition("/")[2]) for export in exports]
    return "\n\n".join(["## Use", *(f"```python\n{block}\n```" for block in blocks)]) if blocks else ""


def _widths(result: RunResult) -> str:
    rows = [f"| {g.name} | {g.max_width} | {g.uniform} | {g.searched} |" for g in result.groups]
    return "\n".join(["## Widths", "", "| group | original | Uniform | searched |", "|---|---|---|---|", *rows])


def _describe_training(finished: FinishedRun) -> str:
    result = finished.result
    recipe = finished.settings.training
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    found = result.search
    if found is None:
        search = f"{result.origin_note[:-1]}; "
    elif finished.settings.method.trains_supernet:
        search = f"Supernet {result.epochs['supernet']} epochs, {found.evaluations:,} candidates; "
    else:
        search = _best_of_trials(finished.settings, found.evaluations)
    return (
        f"## Training\n\n{search}each network {result.epochs['final']} epochs of {recipe.optimizer}, batch "
        f"{recipe.batch_size}, learning rate {recipe.lr:g}, weight decay {recipe.weight_decay:g}. Seed "
        f"{result.seed}; {result.device.name}; {versions}."
    )


def _best_of_trials(settings: Settings, count: int) -> str:
    method = settings.method
    assert isinstance(method, TrainingsMethod), "candidates were trained"
    epochs = method.length
    networks = "random networks" if isinstance(method, Random) else "networks"
    went_on = ", whose own training went on" if method.continues_best else ""
    return f"Best of {count} {networks} after {epochs} epoch{'' if epochs == 1 else 's'} each{went_on}; "


def _limits(result: RunResult) -> str:
    return (
        "## Limits\n\nOne run with one seed: smaller differences than between seeds are not meaningful. The accuracy "
        f"is that on the test images of {data_name(result.data)}; on other images it may be lower."
    )
