#!/bin/sh
# Importing MNN's converter calls `pip install -U` for a logging client.
#
# MNN 3.6.1 (its Python package).
#
# `MNN.tools.mnnconvert`, which is the command `mnnconvert` too, imports a module of MNN's own statistics of use. Where the
# package aliyun-log-python-sdk is missing, that module runs the first `pip` on the PATH by a shell to install it, into
# whatever environment that belongs to; an upgrade there can move other packages. A conversion does not need it: the
# import goes on without, and the compiled module `_tools` converts by itself.
#
# Seen with a `pip` that only writes down what it was asked: "install -U aliyun-log-python-sdk" from importing
# MNN.tools.mnnconvert, nothing from importing MNN and _tools.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6 MNN==3.6.1
cd "$work"
mkdir commands
cat > commands/pip <<'PIP'
#!/bin/sh
echo "$*" >> "$ASKED"
PIP
chmod +x commands/pip
for modules in "MNN, _tools" "MNN.tools.mnnconvert"; do
    ASKED="$work/asked" PATH="$work/commands:$PATH" "$work/env/bin/python" -W ignore -c "import $modules" > /dev/null
    echo "import $modules: $(sort -u asked 2> /dev/null || echo nothing)" | tee -a seen
    rm -f asked
done
cat > expected <<'EXPECTED'
import MNN, _tools: nothing
import MNN.tools.mnnconvert: install -U aliyun-log-python-sdk
EXPECTED
cmp seen expected
