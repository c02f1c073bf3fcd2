# Set-up and daily work. `make demo` and `make test` need nothing but Python >= 3.11 with pip and this file.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# torch is held back by constraints.txt: the newest release drags in several GB of CUDA libraries.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: help demo test test-all test-studies test-networks test-device wheels mutants bench lint docs clean

help:
	@echo "make demo      install, then search a narrower network for scattered digits (about three minutes)"
	@echo "make test      install with test extras, then run the tests (about ten minutes on two cores)"
	@echo "make test-all  the slow tests"
	@echo "make test-studies  the quick form of every study"
	@echo "make test-networks  every property on 97 more networks of torchvision and timm (about two hours)"
	@echo "make test-device DEVICE=cuda  what must hold on a GPU (about five minutes)"
	@echo "make wheels    all packages but torch as files, for a GPU without a network"
	@echo "make mutants   change the core's code in 200 places and see whether the tests notice (about two hours)"
	@echo "make bench     time everything against its rivals, into benchmarks/results/speed.csv (about 20 minutes)"
	@echo "make lint      ruff and mypy"
	@echo "make docs      the documentation, in site/; a broken link is an error"
	@echo "make clean     remove the virtual environment, the demo's run directory and the wheels"

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --editable '.[test,lint]'
	@touch $@

# What writes TFLite files asks for other versions of some packages than the tests do.
LITERT := .venv-litert
$(LITERT)/.installed:
	$(PYTHON) -m venv $(LITERT)
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(LITERT)/bin/python -m pip install --quiet --constraint constraints.txt torch \
		'litert-torch>=0.10' tflite-micro
	@touch $@

# One thread: networks this small lose more by waiting for a second than they gain.
demo: $(VENV)/.installed
	$(BIN)/bcnet search --model vgg_digits --data scattered_digits --budget 0.25 --effort small --threads 1 \
		--at-once 2 --out runs/demo

# glibc gives large tensors back to the kernel at every free, which takes half the time of the tests; let it keep them.
test test-all test-networks test-studies: export MALLOC_MMAP_THRESHOLD_ := 1073741824
test test-all test-networks test-studies: export MALLOC_TRIM_THRESHOLD_ := 1073741824
# A short search is mostly waiting for the disk: where memory has room for 4 GB of files, they go there.
test test-all test-networks test-studies: export TMPDIR := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR > 1 && $$4 > 4000000 { print "/dev/shm" }')
# A process for each core, of one thread each: tensors this small gain nothing from a second.
test test-all test-networks test-studies: export OMP_NUM_THREADS := 1
# Who is done takes half of what another has left: most files stay on one process, and both end together.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist worksteal

test: $(VENV)/.installed-test
	$(PYTEST) -m "not slow and not networks and not studies"

test-all: $(VENV)/.installed-test $(LITERT)/.installed
	BCNET_LITERT_PYTHON=$(CURDIR)/$(LITERT)/bin/python $(PYTEST) -m slow

test-networks: $(VENV)/.installed-test
	$(PYTEST) -m networks

test-studies: $(VENV)/.installed-test $(LITERT)/.installed
	BCNET_LITERT_PYTHON=$(CURDIR)/$(LITERT)/bin/python $(PYTEST) -m studies

DEVICE ?= cpu
test-device: $(VENV)/.installed-test
	BCNET_DEVICE=$(DEVICE) $(BIN)/python -m pytest tests/device

# What a machine without a network installs, beside its own torch: the same Python and kind of processor are assumed.
wheels: $(VENV)/.installed-test
	mkdir -p wheels
	$(BIN)/python -m pip freeze --exclude-editable | grep -ivE '^(torch|torchvision|triton|nvidia)' > wheels/requirements.txt
	$(PIP:install=wheel) --no-deps --wheel-dir wheels --requirement wheels/requirements.txt
	$(PIP:install=wheel) --no-deps --wheel-dir wheels .

mutants: $(VENV)/.installed-test
	$(BIN)/python -m tests.robustness.mutants

bench: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.speed

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python .ci/language.py src

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	@touch $@

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) $(LITERT) runs/demo wheels
