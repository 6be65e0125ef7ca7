#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The engine under the sanitizers: its C++ tests with ASan+UBSan and with TSan, then Python tests over an
# engine built with ASan+UBSan. scripts/sanitize.sh [cpp|python]; both without an argument.
set -e
cd "$(dirname "$0")/.."
what=${1:-all}
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

if [ "$what" != python ]; then
  scripts/test-cpp.sh build-asan -DHOROVOD_SANITIZE=address,undefined
  # ASLR with more random bits than TSan's memory layout allows makes it fail at start-up.
  no_aslr=$(command -v setarch >/dev/null && setarch -R true 2>/dev/null && echo "setarch -R" || true)
  $no_aslr scripts/test-cpp.sh build-tsan -DHOROVOD_SANITIZE=thread
fi

if [ "$what" != cpp ]; then
  cmake -S . -B build-asan -DHOROVOD_TESTS=ON -DHOROVOD_SANITIZE=address,undefined >/dev/null
  cmake --build build-asan -j "$(nproc)" --target horovod_core
  compiler=${CXX:-c++}
  # Python itself is not instrumented: the run-time libraries must be there before it starts, and what the
  # interpreter never frees is not ours to report.
  LD_PRELOAD="$($compiler -print-file-name=libasan.so) $($compiler -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0 \
  HOROVOD_CORE_LIBRARY="$PWD/build-asan/lib/libhorovod_core.so" \
    ${PYTEST:-${VENV:-.venv}/bin/python -m pytest} ${TESTS:-tests/engine tests/numpy} -q -p no:cacheprovider
fi
