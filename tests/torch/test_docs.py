# SPDX-License-Identifier: Apache-2.0
"""Runs the snippets of docs/pytorch.md, in order, on two ranks."""

from __future__ import annotations

import os
import re
import sys
import types

from tests_support import run_world

DOCUMENT = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs", "pytorch.md"
)


def run(snippets: list, folder: str) -> int:
    os.chdir(folder)
    module = sys.modules["snippets"] = types.ModuleType(
        "snippets"
    )  # torch.compile looks functions' modules up
    for number, snippet in enumerate(snippets):
        exec(compile(snippet, f"docs/pytorch.md, snippet {number + 1}", "exec"), vars(module))
    return len(snippets)


def test_snippets(tmp_path):
    with open(DOCUMENT, encoding="utf-8") as document:
        snippets = re.findall(r"^```python\n(.*?)^```", document.read(), re.M | re.S)
    assert len(snippets) > 8
    env = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
    assert run_world(run, 2, env=env, args=(snippets, str(tmp_path)), timeout=300) == [len(snippets)] * 2
    assert (tmp_path / "checkpoint.pt").exists()
