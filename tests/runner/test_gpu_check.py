# SPDX-License-Identifier: Apache-2.0
"""What horovodrun --check and --check-build say about GPUs, on stand-ins for the driver and NCCL."""

from __future__ import annotations

import os
import subprocess
import sys

from standin_gpu import standin_env
from world import worker_env

from horovod.runner.gpu_check import reach_tables


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
    words = " ".join(said.split())
    assert "rank 0 = +" in words and "rank 1 + =" in words
    assert "NCCL 2.28.9 (HOROVOD_NCCL_LIBRARY)" in said
    assert "GPU tensors go: direct up to 1048576 bytes, NCCL 2.28.9 above" in said
    for way in ("direct", "NCCL", "host"):
        assert f"{way}: 4 bytes" in said
    assert "all results are right" in said


def test_a_way_that_is_not_possible_says_why():
    said = horovodrun("-np", "2", "--check", STANDIN_GPUS="1", **standin_env())
    assert "GPU tensors go: direct; no NCCL: it refuses ranks that share a GPU" in said
    assert "rank 0 = =" in " ".join(said.split())
    assert "NCCL: not possible" in said and "Duplicate GPU detected" in said
    assert "host: 4 bytes" in said


def test_who_reaches_whom_is_a_table_for_each_host():
    hosts = ["a", "a", "b", "b", "c"]
    rows = [{0: "=", 1: "+"}, {0: "-", 1: "="}, {2: "=", 3: "?"}, {2: "=", 3: "="}, {4: "="}]
    said = reach_tables(hosts, rows)
    assert [line.split() for line in said if not line.startswith("which")] == [
        ["0", "1"], ["rank", "0", "=", "+"], ["rank", "1", "-", "="],
        ["2", "3"], ["rank", "2", "=", "?"], ["rank", "3", "=", "="],
    ]  # fmt: skip
    assert [line.partition("host ")[2][:1] for line in said if line.startswith("which")] == ["a", "b"]


def test_no_driver():
    said = horovodrun("-np", "1", "--check", HOROVOD_CUDA_LIBRARY="/nowhere/libcuda.so.1")
    assert "GPUs: none" in said
    said = horovodrun("--check-build", HOROVOD_CUDA_LIBRARY="/nowhere/libcuda.so.1")
    assert "NVIDIA driver: not found" in said
    found = standin_env()
    said = horovodrun("--check-build", **found)
    assert f"2.28.9, HOROVOD_NCCL_LIBRARY: {found['HOROVOD_NCCL_LIBRARY']}" in said
    assert os.path.basename(found["HOROVOD_CUDA_LIBRARY"]) in said
