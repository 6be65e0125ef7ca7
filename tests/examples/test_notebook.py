# SPDX-License-Identifier: Apache-2.0
"""The notebook runs from top to bottom: as a plain program, and in a kernel where there is one."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from world import ROOT, worker_env

NOTEBOOK = os.path.join(ROOT, "examples", "horovod_run.ipynb")


def cells():
    with open(NOTEBOOK) as file:
        return ["".join(cell["source"]) for cell in json.load(file)["cells"] if cell["cell_type"] == "code"]


def test_cells_in_order(tmp_path):
    """As one program of a __main__ that has no file, like a notebook's."""
    script = "\n\n".join(cells())
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, env=worker_env(), capture_output=True, text=True, timeout=600, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "hello from rank 0 of 2" in done.stdout and "hello from rank 1 of 2" in done.stdout
    assert "raised here: rank 1 has a bad day" in done.stdout


def test_in_a_kernel(tmp_path, monkeypatch):
    for module in ("nbclient", "ipykernel"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed in {sys.prefix}")
    import nbformat
    from nbclient import NotebookClient

    for name, value in worker_env({"IPYTHONDIR": str(tmp_path), "JUPYTER_PLATFORM_DIRS": "1"}).items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", []))
    assert "hello from rank 1 of 2" in printed and "raised here: rank 1 has a bad day" in printed
