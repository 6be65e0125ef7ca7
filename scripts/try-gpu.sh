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
if [ $# -gt 0 ]; then "$@"; else "${PY:-python3}" -m pytest -q -x tests/gpu; fi
