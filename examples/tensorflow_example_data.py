# SPDX-License-Identifier: Apache-2.0
"""Images for the TensorFlow and Keras examples, without a download: a real data set's files when a path is
given, scikit-learn's 8x8 digits when it is installed, else images generated in the same format."""

import gzip
import os
import struct

import numpy as np


def load_digits(path=None):
    """x_train, y_train, x_test, y_test: float32 images in 0..1 and int64 labels."""
    if path:
        with np.load(path) as file:
            arrays = [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
        x, y, x_test, y_test = arrays
        x, x_test = x.astype("float32") / 255, x_test.astype("float32") / 255
        return x, y.astype("int64"), x_test, y_test.astype("int64")
    try:
        from sklearn.datasets import load_digits as load

        digits = load()
        x, y = digits.images.astype("float32") / 16, digits.target.astype("int64")
    except ImportError:
        x, y = generated(1800, 8, 10)
        x = x.astype("float32") / 255
    return x[:1500], y[:1500], x[1500:], y[1500:]


def generated(count, side, classes, seed=0):
    """uint8 images of `side` x `side`: a pattern for each class, and noise."""
    random = np.random.default_rng(seed)
    patterns = np.random.default_rng(99).integers(0, 200, (classes, side, side))
    labels = random.integers(0, classes, count)
    images = patterns[labels] + random.integers(0, 56, (count, side, side))
    return images.astype("uint8"), labels.astype("int64")


def load_fashion(directory=None, count=2048):
    """Fashion-MNIST: its four IDX files when the directory is given, else images generated in its format."""
    if directory is None:
        train, test = generated(count, 28, 10), generated(count // 4, 28, 10, seed=1)
        return (*train, *test)

    def read(name):
        with gzip.open(os.path.join(directory, name + ".gz"), "rb") as file:
            magic, number = struct.unpack(">II", file.read(8))
            shape = [number, *(struct.unpack(">I", file.read(4))[0] for _ in range(magic % 256 - 1))]
            return np.frombuffer(file.read(), np.uint8).reshape(shape)

    arrays = []
    for part in ("train", "t10k"):
        arrays += [read(f"{part}-images-idx3-ubyte"), read(f"{part}-labels-idx1-ubyte").astype("int64")]
    return tuple(arrays)
