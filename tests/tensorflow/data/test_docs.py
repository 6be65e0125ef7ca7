# SPDX-License-Identifier: Apache-2.0
"""The code of docs/data_service.md, with a service beside it."""

from __future__ import annotations

import importlib.util
import os
import re
import sys

import pytest
from data_service import service
from tf_worlds import run
from world import ROOT

pytest.importorskip("tensorflow")


def execute(page, path):
    sys.argv = ["train.py", path]
    spec = importlib.util.spec_from_file_location("data_service_page", page)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return len(module.everything)


def test_page(tmp_path):
    with open(os.path.join(ROOT, "docs", "data_service.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE)
    page, path = tmp_path / "page.py", str(tmp_path / "service.json")
    page.write_text("\n".join(blocks))
    with service(path):
        assert run("tensorflow", execute, str(page), path) == [100, 100]
