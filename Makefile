# SPDX-License-Identifier: Apache-2.0
#
# make build      compile the engine into horovod/_lib/
# make test       the C++ and Python tests
# make lint       clang-format, clang-tidy, ruff, mypy, imports and includes that point one way, generated files being current
# make sanitize   C++ tests under ASan+UBSan and TSan, and Python tests over an ASan engine
# make bench      our collectives beside Gloo, Open MPI and MPICH, in one run; QUICK=1: in under 5 minutes
# make bench-compare A=... B=...   what a change did: two runs of make bench, as files or commits
# make bench-docs RUN=... MERGE=...   puts a run into README.md and docs/, with rows of other machines
# make bench-spark  Spark jobs, estimators and the Parquet reader beside what else there is
# make bench-elastic  what a death and a newcomer cost, beside torchrun's elastic agent and torchft
# make test-gpu   tests on a real GPU, which 1, 2 and 4 ranks share (starts MPS)
# make bench-gpu  each way of GPU tensors beside torch.distributed and DDP on NCCL
# make wheel      a manylinux2014 wheel in dist/
# make demo       train a small model with 1 and with 2 processes, in an environment of its own
# make docs       renew the generated pages and build the documentation in site/
# make verbs      write the front ends' collectives from their table in horovod/common/verbs.py
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

.PHONY: all build test test-cpp test-python test-mxnet test-torch-versions lint format sanitize bench bench-quick bench-compare bench-docs bench-profile bench-spark bench-elastic test-gpu bench-gpu wheel demo docs verbs venv clean

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

# Old PyTorch wheels are built for CUDA: without their dependencies, and with stand-ins for what they link to.
.venv-torch-%/.ready: requirements/torch-%.txt scripts/stand_in_cuda.py
	@test -x .venv-torch-$*/bin/python || $(PYTHON) -m venv .venv-torch-$*
	.venv-torch-$*/bin/python -m pip install -q --no-deps -r $<
	.venv-torch-$*/bin/python scripts/stand_in_cuda.py
	@touch $@

# On top of $(VENV), whose frameworks the estimators and torchft train with.
.venv-spark/.ready .venv-torchft/.ready: .venv-%/.ready: requirements/%.txt $(VENV)/.ready
	@test -x .venv-$*/bin/python || $(PY) -m venv .venv-$*
	@$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  >$$(.venv-$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/horovod-base.pth
	.venv-$*/bin/python -m pip install -q -r $<
	@touch $@

# ------------------------------------------------------------------------------------ build --
build: $(VENV)/.ready
	@cmake -S . -B build $$(command -v ninja >/dev/null && echo -G Ninja) -DCMAKE_BUILD_TYPE=Release >build.log 2>&1 \
	  || { cat build.log; exit 1; }
	@cmake --build build -j $(JOBS) --target horovod_glue
	@mkdir -p horovod/_lib
	@for so in build/lib/*.so; do scripts/install-if-changed.sh $$so horovod/_lib; done
	@rm -f build.log

# ------------------------------------------------------------------------------------- test --
# All suites, or SUITES="torch jax"; one test: make build, then python -m pytest tests/...
# The environments that the suites need are installed by the script, beside the tests that need no other.
test: build
	$(PY) scripts/run_tests.py --cpp $(SUITES)

test-python: build
	$(PY) scripts/run_tests.py $(SUITES)

test-cpp: $(VENV)/.ready
	@scripts/test-cpp.sh build

# The oldest PyTorch we support and one in the middle: 700 MB each to download, so by hand before a release.
test-torch-versions: build
	$(PY) scripts/run_tests.py torch-2.1 torch-2.6

test-mxnet: build
	$(PY) scripts/run_tests.py mxnet

lint: build
	scripts/lint-cpp.sh
	$(PY) scripts/check_includes.py
	$(VENV)/bin/ruff check horovod tests scripts benchmarks examples
	$(VENV)/bin/ruff format --check horovod tests scripts benchmarks examples
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo --no-cache
	$(PY) scripts/generate_settings.py --check
	$(PY) scripts/generate_verbs.py --check

format: $(VENV)/.ready
	scripts/lint-cpp.sh --fix
	$(VENV)/bin/ruff check --fix horovod tests scripts benchmarks examples
	$(VENV)/bin/ruff format horovod tests scripts benchmarks examples

sanitize: $(VENV)/.ready
	scripts/sanitize.sh

# ------------------------------------------------------------------------------- everything --
# All of it, or BENCH="allreduce startup"; `python -m benchmarks.run --help` has more.
bench: build
	$(PY) -m benchmarks.run $(if $(QUICK),--quick) $(BENCH)

bench-quick:
	@$(MAKE) --no-print-directory bench QUICK=1

bench-compare: $(VENV)/.ready
	@$(PY) -m benchmarks.compare $(A) $(B)

bench-docs: $(VENV)/.ready
	@$(PY) -m benchmarks.report $(RUN) $(if $(MERGE),--merge $(MERGE))

# Where the time of a row goes, e.g. ROW="allreduce-1"; `python -m benchmarks.costs --list` names them.
bench-profile: build
	$(PY) -m benchmarks.costs $(ROW)

# Times and rows per CPU second of horovod.spark and horovod.data beside what else there is, with the goals.
bench-spark: build .venv-spark/.ready .venv-data-bench/.ready
	.venv-spark/bin/python benchmarks/spark_jobs.py
	.venv-data-bench/bin/python benchmarks/data_reader.py

# What a death and a newcomer cost, beside torchrun's elastic agent and torchft.
bench-elastic: build .venv-torchft/.ready
	$(PY) benchmarks/elastic.py

test-gpu: build
	PY=$(PY) scripts/try-gpu.sh

bench-gpu: build
	scripts/try-gpu.sh $(PY) benchmarks/gpu.py --out out

wheel:
	scripts/build-wheel.sh

demo:
	@PYTHON="$(PYTHON)" scripts/demo.sh

docs:
	@VENV="$(VENV)" PYTHON="$(PYTHON)" scripts/build-docs.sh

verbs: $(VENV)/.ready
	$(PY) scripts/generate_verbs.py

clean:
	rm -rf build build-* dist out horovod/_lib/*.so
