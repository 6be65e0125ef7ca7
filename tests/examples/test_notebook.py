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


ELASTIC = """
import horovod

def train(marker):
    import os
    import horovod.numpy as hvd
    from horovod.common.elastic import ObjectState

    hvd.init()
    state = ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, step=0, sum=0.0)
    sizes = []  # of the worlds that this process was in

    @hvd.elastic.run
    def loop(state):
        sizes.append(hvd.size())
        while state.step < 10:
            if state.step == 3 and hvd.rank() == 1 and not os.path.exists(marker):
                open(marker, "w").close()
                os._exit(7)
            state.sum += float(hvd.allreduce([2.0], op=hvd.Average)[0])
            state.step += 1
            state.commit()
        return state.sum, sizes

    return loop(state)

results = horovod.run(train, ("died",), num_proc=2, min_num_proc=1)
assert all(total == 20.0 for total, _ in results), results
print("worlds of rank 0:", results[0][1])
"""


@pytest.fixture
def printed_in_a_kernel(tmp_path, monkeypatch):
    """A function that runs a notebook in a kernel, in tmp_path, and returns what its cells printed."""
    for module in ("nbclient", "ipykernel"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed in {sys.prefix}")
    from nbclient import NotebookClient

    for name, value in worker_env({"IPYTHONDIR": str(tmp_path), "JUPYTER_PLATFORM_DIRS": "1"}).items():
        monkeypatch.setenv(name, value)

    def run(notebook):
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
        return "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", []))

    return run


def test_in_a_kernel(printed_in_a_kernel):
    import nbformat

    printed = printed_in_a_kernel(nbformat.read(NOTEBOOK, as_version=4))
    assert "hello from rank 1 of 2" in printed and "raised here: rank 1 has a bad day" in printed


def test_an_elastic_job_in_a_kernel(printed_in_a_kernel, tmp_path):
    """A rank ends in the middle; the other goes on in its process, and its result comes back to the cell."""
    from nbformat import v4

    printed = printed_in_a_kernel(v4.new_notebook(cells=[v4.new_code_cell(ELASTIC)]))
    assert (tmp_path / "died").exists() and "worlds of rank 0: [2, " in printed
    assert "lost rank 1" in printed and "ended with exit code 7" in printed, printed
