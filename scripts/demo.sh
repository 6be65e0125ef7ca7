#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make demo: a private environment with this package and CPU PyTorch, then scripts/demo.py in it.
#   PYTHON=python3.12 scripts/demo.sh     another Python
#   DEMO_VENV=/tmp/demo scripts/demo.sh   another place for the environment
set -eu
cd "$(dirname "$0")/.."
unset PYTHONPATH  # the demo runs the installed package, as a user has it
unset MAKEFLAGS MAKELEVEL  # `make demo` is no business of the compilation below
export CMAKE_BUILD_PARALLEL_LEVEL="$(nproc)"
venv=${DEMO_VENV:-.venv-demo}
python=${PYTHON:-python3}
needed_mb=2500

fail() {
  echo "demo: $1" >&2
  echo "      $2" >&2
  exit 1
}

# ------------------------------------------------------------------ what the machine must have --
[ "$(uname -s)" = Linux ] || fail "this is $(uname -s); Horovod runs on Linux" \
  "Use a Linux machine, WSL 2 or a container: docker build -f docker/Dockerfile ."
command -v "$python" >/dev/null || fail "there is no $python" "Install Python 3.9 or newer, or set PYTHON=/path/to/python."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || fail \
  "$("$python" --version 2>&1) is too old; 3.9 or newer is needed" "Set PYTHON=/path/to/a/newer/python."
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail \
  "$python cannot make virtual environments" "Install its venv module, e.g. apt install python3-venv."

if [ -f "$venv/.ready" ] && [ -z "$(find csrc horovod pyproject.toml CMakeLists.txt -newer "$venv/.ready" \
     ! -path '*/__pycache__*' ! -name '*.so' -type f -print -quit)" ]; then
  exec "$venv/bin/python" scripts/demo.py "$@"
fi

compiler=${CXX:-c++}
command -v "$compiler" >/dev/null || fail "there is no C++ compiler ($compiler)" \
  "Install one, e.g. apt install g++, or set CXX. (Wheels need no compiler; this builds from source.)"
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
echo '#include <bit>
#include <span>
int main() { return std::popcount(0u); }' >"$trial/t.cc"
"$compiler" -std=c++20 -c "$trial/t.cc" -o "$trial/t.o" 2>/dev/null || fail \
  "$compiler cannot compile C++20" "Use g++ 11 or clang 14, or newer: CXX=/path/to/it make demo"
free_mb=$(df -Pm . | awk 'NR == 2 { print $4 }')
[ "$free_mb" -ge "$needed_mb" ] || fail "$free_mb MB are free here; the environment needs $needed_mb MB" \
  "Free some, or put it elsewhere: DEMO_VENV=/path make demo"

# --------------------------------------------------------------------------------- install --
begin=$(date +%s)
echo "demo: making a private environment in $venv (once; PyTorch is the large part)"
rm -rf "$venv"
"$python" -m venv "$venv"
pip="$venv/bin/python -m pip --disable-pip-version-check --no-input"
# Builds of PyTorch without CUDA are ten times smaller. They are marked "+cpu" and live on PyTorch's own index;
# where neither that nor another source offers one, the usual build does.
cpu_index=https://download.pytorch.org/whl/cpu
extra=$("$python" - "$cpu_index" <<'PY' || true
import sys, urllib.request
try:
    urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/torch/", method="HEAD"), timeout=5)
    print("--extra-index-url", sys.argv[1])
except Exception:
    pass
PY
)
# shellcheck disable=SC2086
cpu_build=$($pip index versions torch $extra 2>/dev/null | grep -o '[0-9][0-9.]*+cpu' | head -n 1 || true)
log=$venv/install.log
# The engine is compiled while the packages are fetched.
# shellcheck disable=SC2086
$pip wheel -q --no-deps -w "$venv/wheel" . >"$log.build" 2>&1 &
build=$!
# shellcheck disable=SC2086
$pip install -q $extra "torch${cpu_build:+==$cpu_build}" numpy scikit-learn matplotlib cloudpickle packaging pyyaml >"$log" 2>&1 || {
  kill $build 2>/dev/null
  tail -n 15 "$log" >&2
  fail "the packages could not be installed" "See $log. Is a package index reachable from here?"
}
echo "demo: PyTorch $("$venv/bin/python" -c 'import torch; print(torch.__version__)') installed after $(($(date +%s) - begin)) s"
wait $build || {
  tail -n 25 "$log.build" >&2
  fail "the engine could not be compiled" "See $log.build."
}
# shellcheck disable=SC2086
$pip install -q --no-deps "$venv"/wheel/*.whl >>"$log" 2>&1
echo "demo: $(ls "$venv/wheel") installed after $(($(date +%s) - begin)) s"
touch "$venv/.ready"
rm -rf "$trial"
exec "$venv/bin/python" scripts/demo.py "$@"
