#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command with MPS, so that ranks can share a GPU and run at the same time; without arguments, the tests
# on a real GPU.
#   scripts/try-gpu.sh
#   scripts/try-gpu.sh python benchmarks/gpu.py
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
if command -v nvidia-cuda-mps-control >/dev/null && [ -z "${HOROVOD_TEST_WITHOUT_MPS:-}" ]; then
  folder=$(mktemp -d)
  export CUDA_MPS_PIPE_DIRECTORY="$folder/pipe" CUDA_MPS_LOG_DIRECTORY="$folder/log"
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  nvidia-cuda-mps-control -d
  trap 'echo quit | nvidia-cuda-mps-control || true; rm -rf "$folder"' EXIT
else
  echo "Without MPS: ranks that share a GPU take turns." >&2
fi
if [ $# -gt 0 ]; then
  "$@"
  exit
fi

# The tests on a real GPU. A rank that is killed may take others of MPS with it, so those tests come first and alone,
# with those of jobs beside each other; then the ways side by side, each in parts. The direct way is one part: jobs of
# it that share a GPU leave each other less room, down to taking turns.
logs=${HOROVOD_TEST_LOGS:-$(mktemp -d)}
mkdir -p "$logs"
tests() { # log, arguments of pytest
  local log="$logs/$1.txt"
  shift
  "${PY:-python3}" -m pytest -q -x -p no:cacheprovider "$@" >"$log" 2>&1
}
declare -A parts
failed=0
tests alone tests/gpu/test_death.py tests/gpu/test_room.py || failed=1
tests direct tests/gpu -k "direct-2 or direct-4 or world_of_one" \
  --ignore tests/gpu/test_death.py --ignore tests/gpu/test_room.py &
parts[direct]=$!
for way in NCCL host; do
  tests "$way-collectives" tests/gpu/test_verbs.py tests/gpu/test_order.py tests/gpu/test_timeline.py \
    -k "$way-2 or $way-4" &
  parts[$way-collectives]=$!
  tests "$way-training" tests/gpu/test_training.py tests/gpu/test_jax.py tests/gpu/test_keras.py \
    -k "$way-2 or $way-4" &
  parts[$way-training]=$!
done
for part in "${!parts[@]}"; do wait "${parts[$part]}" || failed=1; done
tail -n +1 "$logs"/*.txt
exit $failed
