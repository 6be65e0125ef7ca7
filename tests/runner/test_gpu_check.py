# SPDX-License-Identifier: Apache-2.0
"""What horovodrun --check and --check-build say about GPUs, on stand-ins for the driver and NCCL."""

from __future__ import annotations

import os
import subprocess
import sys

from standin_gpu import standin_env
from world import worker_env


def horovodrun(*arguments: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "horovod.runner.launch", *arguments],
        env=worker_env(env), capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_way_is_tried():
    said = horovodrun("-np", "2", "--check", **standin_env())
    assert "GPUs: rank 0 GPU 0 (Stand-in GPU), rank 1 GPU 1 (Stand-in GPU)" in said
    assert "NCCL 2.28.9 (HOROVOD_NCCL_LIBRARY)" in said
    assert "GPU tensors go: direct up to 1048576 bytes, NCCL 2.28.9 above" in said
    for way in ("direct", "NCCL", "host"):
        assert f"{way}: 4 bytes" in said
    assert "all results are right" in said


def test_a_way_that_is_not_possible_says_why():
    said = horovodrun("-np", "2", "--check", STANDIN_GPUS="1", **standin_env())
    assert "GPU tensors go: direct; no NCCL: it refuses ranks that share a GPU" in said
    assert "NCCL: not possible" in said and "Duplicate GPU detected" in said
    assert "host: 4 bytes" in said


def test_no_driver():
    said = horovodrun("-np", "1", "--check", HOROVOD_CUDA_LIBRARY="/nowhere/libcuda.so.1")
    assert "GPUs: none" in said
    said = horovodrun("--check-build", HOROVOD_CUDA_LIBRARY="/nowhere/libcuda.so.1")
    assert "NVIDIA driver: not found" in said
    found = standin_env()
    said = horovodrun("--check-build", **found)
    assert f"2.28.9, HOROVOD_NCCL_LIBRARY: {found['HOROVOD_NCCL_LIBRARY']}" in said
    assert os.path.basename(found["HOROVOD_CUDA_LIBRARY"]) in said
