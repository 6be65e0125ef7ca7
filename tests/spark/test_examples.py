# SPDX-License-Identifier: Apache-2.0
"""The examples for Spark run, and what they train has learnt something."""

from __future__ import annotations

import re

import pytest


def numbers(text, label):
    return [float(number) for number in re.findall(rf"{label} ([\d.]+)", text)]


@pytest.mark.parametrize("name", ["spark_keras_digits.py", "spark_torch_digits.py"])
def test_digits(pages, name):
    text = pages[1](name)
    losses, (accuracy,) = numbers(text, "loss"), numbers(text, "test accuracy")
    assert losses[-1] < 0.5 * losses[0] and accuracy > 0.8, text


def test_sales(pages):
    folder, text_of = pages
    text = text_of("spark_keras_sales.py")
    (error,) = numbers(text, "relative error")
    assert error < 0.3, text
    lines = (folder / "sales.csv").read_text().splitlines()
    assert lines[0] == "shop,date,sales" and len(lines) == 1 + 20 * 14
    assert all(1_000 < float(line.split(",")[2]) < 30_000 for line in lines[1:])
