# SPDX-License-Identifier: Apache-2.0
"""The code of docs/keras.md, on each backend."""

from __future__ import annotations

import os
import re

import pytest
from tf_worlds import run

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def snippets(page):
    with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as file:
        return "\n".join(re.findall(r"^```python\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE))


def execute(code):
    names = {"__name__": "docs"}
    exec(code, names)
    return float(names["mean"]), len(names["every"])


@pytest.mark.parametrize("kind", ["tensorflow", "torch", "jax"])
def test_page(kind):
    assert run(kind, execute, snippets("keras.md")) == [(0.5, 2)] * 2
