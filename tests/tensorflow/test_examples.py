# SPDX-License-Identifier: Apache-2.0
"""The five kinds of program that circulate in tutorials and labs, run by horovodrun on two ranks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

EXAMPLES = {
    "tensorflow1_graph_mnist.py": ("--steps 800", r"test accuracy (0\.[89]|1\.)"),
    "tensorflow2_tape_mnist.py": ("--steps 200", r"saved .*\n.*test accuracy (0\.[89]|1\.)"),
    "tensorflow2_keras_mnist.py": (
        "--epochs 4 --steps 60",
        r"finished gradual learning rate warmup to 0.002",
    ),
    "tensorflow2_keras_wide_resnet.py": (
        "--epochs 2 --images 256 --batch-size 16 --wd 0.0001",
        r"images/s[\s\S]*Total training time[\s\S]*Final evaluation: loss",
    ),
    "tensorflow2_synthetic_benchmark.py": (
        "--model MobileNetV2 --image-size 32 --batch-size 4 --num-iters 2 --num-batches-per-iter 1 "
        "--num-warmup-batches 1",
        r"Img/sec per CPU: [\d.]+ \+-[\d.]+\n[\s\S]*Total img/sec on 2 CPU\(s\): ",
    ),
}


def launch(*command, timeout=240):
    env = {**os.environ, "PYTHONPATH": ROOT, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    env.update(OMP_NUM_THREADS="1", TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="2")
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, cwd=ROOT)


def test_data_service(tmp_path):
    """tensorflow2_data_service.py trains on what another job's workers prepare, and ends them."""
    path = str(tmp_path / "service.json")
    worker = [sys.executable, "-m", "horovod.tensorflow.data.compute_worker", path]
    example = [sys.executable, os.path.join("examples", "tensorflow2_data_service.py"), path]
    with ThreadPoolExecutor(1) as pool:
        service = pool.submit(launch, sys.executable, "-m", "horovod.runner.launch", "-np", "2", *worker)
        done = launch(*example, "--training-tasks", "2", "--reuse-dataset")
        ended = service.result()
    assert done.returncode == 0 and ended.returncode == 0, done.stderr[-3000:] + ended.stderr[-3000:]
    assert float(re.search(r"loss ([\d.]+) on rank 0 of 2", done.stdout)[1]) < 1.5  # of guessing: 2.3


@pytest.mark.parametrize("script", sorted(EXAMPLES))
def test_example(script):
    arguments, expected = EXAMPLES[script]
    launcher = [sys.executable, "-m", "horovod.runner.launch", "-np", "2"]
    done = launch(*launcher, sys.executable, os.path.join("examples", script), *arguments.split())
    output = re.sub(r"^\[\d+\]<std\w+>:", "", done.stdout, flags=re.MULTILINE)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    assert re.search(expected, output), output[-1500:]
