# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits for the examples: the small ones that come with scikit-learn, or the MNIST files.

The MNIST files are train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
t10k-labels-idx1-ubyte, with or without .gz.
"""

from __future__ import annotations

import gzip
import os
import struct
from typing import NamedTuple, Optional

import numpy as np


class Digits(NamedTuple):
    """Images are float32 in 0..1 of shape (n, 1, side, side); labels are int64."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def load_digits(directory: Optional[str] = None) -> Digits:
    """The MNIST files of a directory, or scikit-learn's 1,797 images of 8 x 8 pixels."""
    if directory:
        train_x, test_x = (_images(directory, which) for which in ("train", "t10k"))
        train_y, test_y = (_read_idx(directory, f"{which}-labels-idx1-ubyte") for which in ("train", "t10k"))
        return Digits(train_x, train_y.astype(np.int64), test_x, test_y.astype(np.int64))
    from sklearn.datasets import load_digits as load

    x, y = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))  # the same on every rank
    x, y = (x[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8), y[order].astype(np.int64)
    return Digits(x[:1500], y[:1500], x[1500:], y[1500:])


def _images(directory: str, which: str) -> np.ndarray:
    pixels = _read_idx(directory, f"{which}-images-idx3-ubyte")
    return (pixels[:, None] / 255).astype(np.float32)


def _read_idx(directory: str, name: str) -> np.ndarray:
    """An array in MNIST's format: a number that ends in the count of dimensions, these, the bytes."""
    path = os.path.join(os.path.expanduser(directory), name)
    for candidate, opener in ((path, open), (path + ".gz", gzip.open)):
        if os.path.exists(candidate):
            with opener(candidate, "rb") as file:
                data = file.read()
            count = data[3]
            shape = struct.unpack(f">{count}I", data[4 : 4 + 4 * count])
            return np.frombuffer(data, np.uint8, offset=4 + 4 * count).reshape(shape)
    raise FileNotFoundError(f"neither {name} nor {name}.gz is in {directory}")
