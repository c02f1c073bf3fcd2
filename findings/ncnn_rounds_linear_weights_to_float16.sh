#!/bin/sh
# ncnn rounds the weights of linear layers to float16 by default, on x86 too, although the file holds float32.
#
# ncnn 1.0.20261020 (its Python package), on x86-64 with F16C.
#
# The option use_fp16_storage is on. Convolutions stay in float32; an InnerProduct, the last layer of most networks, is
# some ten-thousandths off. Whoever compares a converted file with its source at float32's tolerance has to set the
# option off before load_param.
#
# Seen: relative error 2.7e-04 by default, 9.3e-08 without use_fp16_storage.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6 ncnn==1.0.20261020
cd "$work"
"$work/env/bin/python" - <<'PYTHON'
import sys

import ncnn
import numpy as np

generator = np.random.default_rng(0)
weights = generator.standard_normal((16, 64)).astype(np.float32)
features = generator.standard_normal(64).astype(np.float32)
with open("network.param", "w") as file:
    file.write("7767517\n2 2\nInput in 0 1 in0\n")
    file.write(f"InnerProduct head 1 1 in0 out0 0=16 1=0 2={weights.size}\n")
with open("network.bin", "wb") as file:
    file.write(b"\0\0\0\0" + weights.tobytes())  # a flag of zero: float32 follows
expected = weights.astype(np.float64) @ features


def error(**options: bool) -> float:
    """The largest difference from float64, relative to the largest output."""
    network = ncnn.Net()
    network.opt.num_threads = 1
    for name, value in options.items():
        setattr(network.opt, name, value)
    assert network.load_param("network.param") == 0
    assert network.load_model("network.bin") == 0
    extractor = network.create_extractor()
    extractor.input("in0", ncnn.Mat(features))
    return float(np.abs(np.array(extractor.extract("out0")[1]) - expected).max() / np.abs(expected).max())


default = error()
exact = error(use_fp16_storage=False)
print(f"relative error {default:.1e} by default, {exact:.1e} without use_fp16_storage")
sys.exit(not (default > 5e-5 and exact < 1e-6))
PYTHON
