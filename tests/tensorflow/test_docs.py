# SPDX-License-Identifier: Apache-2.0
"""The code of docs/tensorflow.md."""

from __future__ import annotations

import importlib.util
import os
import re

from tf_worlds import run

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def execute(path):
    """A page's blocks as one module: tf.function wants to read sources."""
    spec = importlib.util.spec_from_file_location("tensorflow_page", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.mean.numpy().tolist(), int(module.state.epoch), len(module.objects)


def test_page(tmp_path):
    with open(os.path.join(ROOT, "docs", "tensorflow.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE)
    path = tmp_path / "tensorflow_page.py"
    path.write_text("\n".join(blocks))
    assert run("tensorflow", execute, str(path)) == [([1.5, 3.0], 2, 2)] * 2
