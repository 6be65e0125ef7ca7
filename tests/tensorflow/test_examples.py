# SPDX-License-Identifier: Apache-2.0
"""The five kinds of program that circulate in tutorials and labs, run by horovodrun on two ranks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
from launching import HOROVODRUN, default_signals

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


ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": ROOT,
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "2",
}


def launch(*command, timeout=600):
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout, cwd=ROOT)


def end_of(service, said):
    """What the service has said when it ended; if it does not, what its ranks were doing."""
    try:
        service.wait(120)
    except subprocess.TimeoutExpired:
        service.send_signal(signal.SIGQUIT)
        service.send_signal(signal.SIGTERM)
        service.wait(60)
    return said.read_text()


def test_data_service(tmp_path):
    """tensorflow2_data_service.py trains on what another job's workers prepare, and ends them."""
    path, said = str(tmp_path / "service.json"), tmp_path / "said.txt"
    worker = [sys.executable, "-m", "horovod.tensorflow.data.compute_worker", path, "--timeout", "240"]
    example = [sys.executable, os.path.join("examples", "tensorflow2_data_service.py"), path]
    with said.open("w") as stream:
        service = subprocess.Popen(
            [*HOROVODRUN, "-np", "2", *worker], env=ENVIRONMENT, stdout=stream, stderr=stream, cwd=ROOT,
            preexec_fn=default_signals,
        )  # fmt: skip
    done = launch(*example, "--training-tasks", "2", "--reuse-dataset")
    text = end_of(service, said)
    assert done.returncode == 0 and service.returncode == 0, done.stderr[-3000:] + text[-9000:]
    assert float(re.search(r"loss ([\d.]+) on rank 0 of 2", done.stdout)[1]) < 1.5  # of guessing: 2.3


@pytest.mark.parametrize("script", sorted(EXAMPLES))
def test_example(script):
    arguments, expected = EXAMPLES[script]
    launcher = [sys.executable, "-m", "horovod.runner.launch", "-np", "2"]
    done = launch(*launcher, sys.executable, os.path.join("examples", script), *arguments.split())
    output = re.sub(r"^\[\d+\]<std\w+>:", "", done.stdout, flags=re.MULTILINE)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    assert re.search(expected, output), output[-1500:]
