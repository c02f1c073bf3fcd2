#!/bin/sh
# ncnn normalises every channel by itself where a LayerNorm is over channels, height and width together.
#
# ncnn 1.0.20261020 (its Python package) on x86-64.
#
# Its LayerNorm knows two sizes of a three-dimensional map, a row and a whole channel. `affine_size` of the whole map, as
# converters write it for a normalisation over (channels, height, width), is read as that of a channel. It loads and runs
# without an error, and gives other numbers: differences between channels, which such a layer keeps, are gone.
# One group of GroupNorm computes what was meant.
#
# Seen for 6 channels of 4 x 4 with different means: LayerNorm with affine_size 96 is off by more than 0.1 and gives every
# channel the mean 0; GroupNorm with one group is right.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6 ncnn==1.0.20261020
cd "$work"
: > norm.bin
"$work/env/bin/python" - <<'PYTHON'
import sys

import ncnn
import numpy as np

x = np.random.default_rng(0).standard_normal((6, 4, 4)).astype(np.float32) + np.arange(6, dtype=np.float32)[:, None, None]
expected = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
seen = {}
for layer, settings in (("LayerNorm", "0=96 1=1e-5 2=0"), ("GroupNorm", "0=1 1=6 2=1e-5 3=0")):
    with open("norm.param", "w") as file:
        file.write(f"7767517\n2 2\nInput in0 0 1 in0\n{layer} norm 1 1 in0 out0 {settings}\n")
    network = ncnn.Net()
    loaded = network.load_param("norm.param"), network.load_model("norm.bin")
    extractor = network.create_extractor()
    extractor.input("in0", ncnn.Mat(x).clone())
    output = np.array(extractor.extract("out0")[1])
    off = float(np.abs(output - expected).max())
    centred = bool(np.allclose(output.mean(axis=(1, 2)), 0, atol=1e-4))
    seen[layer] = (loaded, off < 1e-3, off > 0.1, centred)
    print(f"{layer}: loaded {loaded}, off by {off:.2g}, every channel has the mean 0: {centred}")
sys.exit(seen != {"LayerNorm": ((0, 0), False, True, True), "GroupNorm": ((0, 0), True, False, False)})
PYTHON
