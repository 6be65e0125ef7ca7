# SPDX-License-Identifier: Apache-2.0
"""Every example runs on two ranks, and does what it says."""

from __future__ import annotations

import gzip
import importlib.util
import os
import re
import struct
import subprocess
import sys

import numpy as np
import pytest
from world import ROOT, worker_env

EXAMPLES = os.path.join(ROOT, "examples")
TIMEOUT = 600  # for machines that are busy with other things


def run(name, *options, size=2, python=sys.executable, cwd=None):
    """What an example prints; without the marks of the ranks."""
    launcher = [sys.executable, "-m", "horovod.runner.launch", "-np", str(size)] if size > 1 else []
    done = subprocess.run(
        [*launcher, python, os.path.join(EXAMPLES, name), *options],
        env=worker_env(), capture_output=True, text=True, timeout=TIMEOUT, cwd=cwd,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return re.sub(r"^\[\d+\]<\w+>:", "", done.stdout, flags=re.MULTILINE)


def series(text, label):
    """The numbers printed after a label."""
    return [float(number) for number in re.findall(rf"{label} (-?[\d.]+)", text)]


def needs(*modules):
    """Skips, with the reason, where a module is missing."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed in {sys.prefix}")


def assert_learns(text, epochs, accuracy=0.85):
    losses, accuracies = series(text, "loss"), series(text, "test accuracy")
    assert len(losses) == len(accuracies) == epochs, text
    assert losses[-1] < 0.5 * losses[0] and accuracies[-1] > accuracy, text


# ------------------------------------------------------------------------------------------- numpy --


@pytest.mark.parametrize("size", [1, 3])
def test_numpy_hello(size):
    text = run("numpy_hello.py", size=size)
    assert all(f"hello from rank {rank} of {size}" in text for rank in range(size))
    total = sum(range(size))
    assert f"sum           [{total}. {total}. {total}.]" in text, text
    assert f"max           [{size - 1}. {size - 1}. {size - 1}.]" in text, text


def test_process_sets():
    text = run("process_sets.py", size=3)
    assert "rank 2 is number 1 of 2 in its set [0, 2]: sum in the set 2, sum of all 3" in text, text
    assert "rank 1 is number 0 of 1 in its set [1]: sum in the set 1, sum of all 3" in text, text


def test_object_broadcast():
    text = run("object_broadcast.py")
    assert all(f"rank {rank} got lr 0.1 and mean [0.0, 1.0, 2.0, 3.0]" in text for rank in range(2)), text
    assert "2 reports, from ranks [0, 1]" in text, text


@pytest.mark.parametrize("name", ["process_sets.py", "object_broadcast.py"])
def test_one_process_is_enough(name):
    assert "rank 0" in run(name, size=1)


# ------------------------------------------------------------------------------------------- torch --


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pytorch_mnist.py", ["--fp16-allreduce"]),
        ("pytorch_gradient_accumulation.py", []),
        ("pytorch_gradient_accumulation.py", ["--style", "no-sync"]),
        ("pytorch_amp.py", []),
        ("pytorch_adasum.py", []),
        ("uneven_data_join.py", []),
    ],
)
def test_torch_learns(name, options):
    needs("torch", "sklearn")
    text = run(name, "--epochs", "5", *options)
    assert_learns(text, 5)
    if name == "uneven_data_join.py":
        assert text.count("batches by rank [16, 32], last to join: rank 1") == 5, text
    if name == "pytorch_amp.py":
        assert "equal: True" in text, text
    if name == "pytorch_adasum.py":
        assert "ones give [1.0, 1.0], orthogonal unit vectors [1.0, 1.0]" in text, text


def test_torch_learns_alone():
    needs("torch", "sklearn")
    assert_learns(run("pytorch_mnist.py", "--epochs", "4", size=1), 4)


def test_checkpoint_is_resumed_by_a_job_of_another_size(tmp_path):
    needs("torch", "sklearn")
    file = str(tmp_path / "checkpoint.pt")
    first = run("checkpoint_resume.py", "--checkpoint", file, "--epochs", "3")
    again = run("checkpoint_resume.py", "--checkpoint", file, "--epochs", "5", size=1)
    assert "starting anew" in first and "resuming after epoch 3" in again
    assert re.findall(r"epoch (\d):", first + again) == list("12345")
    assert series(again, "loss")[-1] < series(first, "loss")[-1] < series(first, "loss")[0]


def test_synthetic_benchmark():
    needs("torch")
    text = run(
        "pytorch_synthetic_benchmark.py", "--batch-size", "2", "--rounds", "2", "--batches-per-round", "2"
    )
    assert text.count("round ") == 2 and re.search(r"all 2: [\d.]+ images/s", text), text


def write_mnist(directory, which, count, packed):
    """Random images and labels in MNIST's format."""
    rng = np.random.default_rng(len(which))
    arrays = {
        f"{which}-images-idx3-ubyte": rng.integers(0, 256, (count, 28, 28), np.uint8),
        f"{which}-labels-idx1-ubyte": rng.integers(0, 10, count).astype(np.uint8),
    }
    for name, array in arrays.items():
        data = struct.pack(">I", 0x800 + array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
        opener, suffix = (gzip.open, ".gz") if packed else (open, "")
        with opener(os.path.join(directory, name + suffix), "wb") as file:
            file.write(data + array.tobytes())
    return arrays


def test_real_mnist_files(tmp_path):
    needs("torch")
    write_mnist(tmp_path, "train", 128, packed=True)
    write_mnist(tmp_path, "t10k", 32, packed=False)
    text = run("pytorch_mnist.py", "--data-dir", str(tmp_path), "--epochs", "1")
    assert len(series(text, "loss")) == 1, text


def test_idx_files_are_read_right(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    from _data import load_digits

    train, test = write_mnist(tmp_path, "train", 20, True), write_mnist(tmp_path, "t10k", 5, False)
    data = load_digits(str(tmp_path))
    np.testing.assert_allclose(data.train_x[:, 0] * 255, train["train-images-idx3-ubyte"], atol=1e-4)
    np.testing.assert_array_equal(data.test_y, test["t10k-labels-idx1-ubyte"])
    with pytest.raises(FileNotFoundError, match="train-images-idx3-ubyte.gz"):
        load_digits(str(tmp_path / "nowhere"))


# ---------------------------------------------------------------------------------- other frameworks --


def tested_elsewhere():
    """The text of the tests of the other front ends."""
    text = ""
    for area in ("jax", "mxnet", "tensorflow", "keras", "ray", "spark"):
        directory = os.path.join(ROOT, "tests", area)
        for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
            if name.endswith(".py"):
                with open(os.path.join(directory, name)) as file:
                    text += file.read()
    return text


def scripts():
    """Name -> text of what can be run: everything that joins a job."""
    texts = {}
    for name in sorted(os.listdir(EXAMPLES)):
        if name.endswith(".py"):
            with open(os.path.join(EXAMPLES, name)) as file:
                texts[name] = file.read()
    return {name: text for name, text in texts.items() if "hvd.init(" in text}


def test_no_example_is_left_out():
    """Every script is run by a test, here or beside its front end, and is in the list."""
    with open(__file__) as file:
        tests = file.read() + tested_elsewhere()
    with open(os.path.join(EXAMPLES, "README.md")) as file:
        listed = file.read()
    assert len(scripts()) >= 12
    assert not [name for name in scripts() if name not in tests]
    assert not [name for name in scripts() if f"`{name}`" not in listed]


@pytest.mark.parametrize("name", sorted(scripts()))
def test_examples_tell_how_to_run_them(name):
    text = scripts()[name]
    assert f"examples/{name}" in text.split('"""')[1]
    assert text.count("\n") <= 160, "long for an example"
