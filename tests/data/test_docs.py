# SPDX-License-Identifier: Apache-2.0
"""Runs the snippets of docs/data.md, in order, on one and on two ranks."""

from __future__ import annotations

import os
import re

import pytest
from world import ROOT, run_world


def run(code: str, folder: str) -> bool:
    os.chdir(folder)
    exec(compile(code, "docs/data.md", "exec"), {"__name__": "__main__"})
    return True


@pytest.mark.parametrize("size", [1, 2])
def test_snippets(tmp_path, size):
    pytest.importorskip("torch")
    with open(os.path.join(ROOT, "docs", "data.md"), encoding="utf-8") as document:
        snippets = re.findall(r"^```python\n(.*?)^```", document.read(), re.M | re.S)
    assert len(snippets) > 4
    assert run_world(run, size, args=("\n".join(snippets), str(tmp_path))) == [True] * size
