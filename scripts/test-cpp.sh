#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the C++ unit tests: scripts/test-cpp.sh BUILD_DIR [cmake options]
set -e
cd "$(dirname "$0")/.."
dir=$1
shift
if [ ! -f csrc/tests/CMakeLists.txt ]; then
  echo "test-cpp: csrc/tests/CMakeLists.txt is missing" >&2
  exit 1
fi
generator=$(command -v ninja >/dev/null && echo -GNinja || echo "-GUnix Makefiles")
cmake -S . -B "$dir" "$generator" -DHOROVOD_TESTS=ON "$@" >/dev/null
cmake --build "$dir" -j "$(nproc)"
ctest --test-dir "$dir" --output-on-failure --timeout 300
