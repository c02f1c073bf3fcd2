"""ExecuTorch: .pte files whose layers run on XNNPACK, as on phone CPUs."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from bcnet.errors import ExportError
from bcnet.formats import Format, Int8, Opened, Runner, export_graph, import_package, in_order
from bcnet.machine.measure import ExecuTorchFile
from bcnet.pytree import Pytree, tensors

_import = partial(import_package, need="ExecuTorch needs packages of its own", extra="executorch")


class ExecuTorch(Format):
    """ExecuTorch with XNNPACK, for one batch size."""

    suffix = "pte"
    runtime = "ExecuTorch"
    opens_batch = False
    takes_bytes = True

    def write(
        self, network: nn.Module, example: Pytree, notes: Mapping[str, str], *, opened: Opened = "batch"
    ) -> bytes:
        """See `Format`."""
        ordered, inputs = in_order(network, example)
        program = export_graph(ordered.eval(), inputs, opened="nothing")
        with _quiet():
            exir = _import("executorch.exir")
            partition = _import("executorch.backends.xnnpack.partition.xnnpack_partitioner")
            try:
                program = self._prepare(program, inputs)
                edge = exir.to_edge_transform_and_lower(program, partitioner=[partition.XnnpackPartitioner()])
                return bytes(edge.to_executorch().buffer)
            except ExportError:
                raise
            except Exception as error:  # its passes raise errors of many types
                reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
                raise ExportError(
                    f"ExecuTorch refuses {type(network).__name__} with {type(error).__name__}: {reason}: take another "
                    "--format, or compute it by other operators in forward()"
                ) from error

    def _prepare(self, program: torch.export.ExportedProgram, inputs: Any) -> torch.export.ExportedProgram:
        return program

    def runner(self, content: bytes, network: nn.Module, threads: int) -> Runner:
        """See `Format`."""
        with _quiet():
            _import("executorch.runtime")
            file = ExecuTorchFile(content, threads)

        def run(inputs: Pytree) -> Any:
            found = [output.clone() for output in file([t.contiguous() for t in tensors(inputs)])]
            return found[0] if len(found) == 1 else found

        return run


class ExecuTorchInt8(Int8, ExecuTorch):
    """ExecuTorch in int8 with per-channel weights, and real numbers as inputs and outputs."""

    def _prepare(self, program: torch.export.ExportedProgram, inputs: Any) -> torch.export.ExportedProgram:
        samples = tensors(self.samples)
        pt2e = _import("torchao.quantization.pt2e.quantize_pt2e")
        xnnpack = _import("executorch.backends.xnnpack.quantizer.xnnpack_quantizer")
        quantizer = xnnpack.XNNPACKQuantizer()
        quantizer.set_global(xnnpack.get_symmetric_quantization_config(is_per_channel=True))
        prepared = pt2e.prepare_pt2e(program.module(), quantizer)
        with torch.no_grad():
            for number in range(len(samples[0])):
                prepared(*(tensor[number] for tensor in samples))
        return torch.export.export(pt2e.convert_pt2e(prepared), inputs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the packages' output and warnings, mostly from C++; errors are raised."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing, warnings.catch_warnings():
            os.dup2(nothing.fileno(), 2)
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
