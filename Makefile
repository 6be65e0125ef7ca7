# SPDX-License-Identifier: Apache-2.0
#
# make build      compile the engine into horovod/_lib/
# make test       the C++ and Python tests
# make lint       clang-format, clang-tidy, ruff, mypy, imports that point one way, generated files being current
# make sanitize   C++ tests under ASan+UBSan and TSan, and Python tests over an ASan engine
# make bench      our collectives beside Gloo, Open MPI and MPICH, in one run
# make wheel      a manylinux2014 wheel in dist/
# make demo       train a small model with 1 and with 2 processes, in an environment of its own
# make docs       renew the generated pages and build the documentation in site/
#
# Everything is installed into .venv by `make venv`; set VENV to use another one.

VENV ?= .venv
PYTHON ?= python3
JOBS ?= $(shell nproc)
PY := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR)
export PATH := $(abspath $(VENV))/bin:$(PATH)
PYTEST ?= $(PY) -m pytest
SUITES ?=

.PHONY: all build test test-cpp test-python lint format sanitize bench wheel demo docs venv clean

all: build

# ---------------------------------------------------------------------------- environments --
venv: $(VENV)/.ready

$(VENV)/.ready: requirements-dev.txt
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	scripts/install-requirements.sh $(PY) requirements-dev.txt
	@touch $@

# Frameworks that cannot share an environment with the others: requirements/<name>.txt
.venv-%/.ready: requirements/%.txt
	@test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install -q -r $<
	@touch $@

ENVIRONMENTS := .venv-mxnet/.ready .venv-jax-old/.ready .venv-tf-old/.ready

# ------------------------------------------------------------------------------------ build --
build: $(VENV)/.ready
	@cmake -S . -B build $$(command -v ninja >/dev/null && echo -G Ninja) -DCMAKE_BUILD_TYPE=Release >build.log 2>&1 \
	  || { cat build.log; exit 1; }
	@cmake --build build -j $(JOBS) --target horovod_glue
	@mkdir -p horovod/_lib
	@for so in build/lib/*.so; do scripts/install-if-changed.sh $$so horovod/_lib; done
	@rm -f build.log

# ------------------------------------------------------------------------------------- test --
test: test-cpp test-python

test-cpp: $(VENV)/.ready
	@scripts/test-cpp.sh build

# All suites, or SUITES="torch jax"; one test: make build, then python -m pytest tests/...
test-python: build $(ENVIRONMENTS)
	$(PY) scripts/run_tests.py $(SUITES)

test-mxnet: build .venv-mxnet/.ready
	$(PY) scripts/run_tests.py mxnet

lint: build
	scripts/lint-cpp.sh
	$(VENV)/bin/ruff check horovod tests scripts benchmarks examples
	$(VENV)/bin/ruff format --check horovod tests scripts benchmarks examples
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo --no-cache
	$(PY) scripts/generate_settings.py --check

format: $(VENV)/.ready
	scripts/lint-cpp.sh --fix
	$(VENV)/bin/ruff check --fix horovod tests scripts benchmarks examples
	$(VENV)/bin/ruff format horovod tests scripts benchmarks examples

sanitize: $(VENV)/.ready
	scripts/sanitize.sh

# ------------------------------------------------------------------------------- everything --
bench: build
	$(PY) -m benchmarks.run
	$(PY) benchmarks/jax_allreduce.py
	$(PY) benchmarks/torch_ddp.py --out out
	$(PY) benchmarks/tensorflow_allreduce.py
	$(PY) benchmarks/elastic.py

wheel:
	scripts/build-wheel.sh

demo:
	@PYTHON="$(PYTHON)" scripts/demo.sh

docs:
	@VENV="$(VENV)" PYTHON="$(PYTHON)" scripts/build-docs.sh

clean:
	rm -rf build build-* dist out horovod/_lib/*.so
