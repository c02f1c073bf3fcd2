#!/bin/sh
# ncnn's power of a negative number is a large wrong number on x86, also where the exponent is whole.
#
# ncnn 1.0.20261020 (its Python package), on x86-64.
#
# Its vector code computes x ** y as exp(y * log(x)), and its log of a negative number is no NaN but something finite. The
# cube of the tanh form of GELU, as many models write it by hand (x + 0.044715 * x ** 3), and generalised-mean pooling
# meet it. Converters write a square as a layer of its own, so that x ** 2 is right.
#
# Seen for the numbers from -2 to 2 and exponent 3: the cubes of positive numbers are right to 0.1 %, and every negative
# number has a cube above 1e30.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6 ncnn==1.0.20261020
cd "$work"
cat > cube.param <<'PARAM'
7767517
2 2
Input in0 0 1 in0
BinaryOp cube 1 1 in0 out0 0=6 1=1 2=3.0
PARAM
: > cube.bin
"$work/env/bin/python" - <<'PYTHON'
import sys

import ncnn
import numpy as np

x = np.linspace(-2, 2, 16, dtype=np.float32)
network = ncnn.Net()
loaded = network.load_param("cube.param"), network.load_model("cube.bin")
extractor = network.create_extractor()
extractor.input("in0", ncnn.Mat(x).clone())
found = np.array(extractor.extract("out0")[1])
print("x:   ", " ".join(f"{value:.3g}" for value in x))
print("ncnn:", " ".join(f"{value:.3g}" for value in found))
positive = bool(np.allclose(found[x >= 0], x[x >= 0] ** 3, rtol=1e-3))
negative = bool(np.all(found[x < 0] > 1e30))
print(f"loaded {loaded}, positive numbers right {positive}, negative numbers far off {negative}")
sys.exit((loaded, positive, negative) != ((0, 0), True, True))
PYTHON
