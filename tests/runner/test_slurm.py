# SPDX-License-Identifier: Apache-2.0
"""Under a real srun, and horovodrun inside a real allocation."""

from __future__ import annotations

import contextlib
import os
import sys

import pytest
from launching import REPORT, ROOT, environment, reports
from slurm_here import Slurm, why_not

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"no Slurm: {REASON}")
AS_HOST = os.path.join(ROOT, "tests", "runner", "scripts", "as_host.sh")


@pytest.fixture(scope="module")
def slurm():
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(Slurm())
        except RuntimeError as error:
            pytest.skip(f"Slurm does not start here: {error}")
        yield made


def test_srun(slurm):
    done = slurm.run(["srun", "-n", "2", sys.executable, REPORT, "--rounds", "2"], **environment())
    assert done.returncode == 0, done.stdout + done.stderr + slurm.log()
    found = reports(done.stdout)
    assert [(r["round"], r["rank"], r["size"], r["launcher"]) for r in found] == [
        (0, 0, 2, "srun"), (0, 1, 2, "srun"), (1, 0, 2, "srun"), (1, 1, 2, "srun"),
    ]  # fmt: skip
    folder = os.path.expanduser("~/.horovod/rendezvous")
    assert not [name for name in os.listdir(folder) if slurm.cluster in name], "rank 0 left its file behind"


def test_srun_with_several_hosts(slurm):
    done = slurm.run(["srun", "-n", "4", AS_HOST, sys.executable, REPORT], **environment())
    assert done.returncode == 0, done.stdout + done.stderr + slurm.log()
    assert [(r["rank"], r["size"]) for r in reports(done.stdout)] == [(rank, 4) for rank in range(4)]


def test_a_batch_script_is_not_a_rank(slurm, tmp_path):
    out = tmp_path / "out"
    script = tmp_path / "job.sh"
    run = f"{sys.executable} {REPORT}"
    script.write_text(f"#!/bin/sh\n{run}\n{sys.executable} -m horovod.runner.launch {run}\n")
    done = slurm.run(["sbatch", "-n", "2", "--wait", "-o", str(out), str(script)], **environment())
    text = out.read_text()
    assert done.returncode == 0, text + done.stderr
    alone, *together = sorted(reports(text), key=lambda one: one["size"])
    assert (alone["rank"], alone["size"], alone["launcher"]) == (0, 1, "none")
    # horovodrun needs neither -np nor -H inside an allocation
    assert [(r["rank"], r["size"], r["launcher"]) for r in together] == [
        (0, 2, "horovodrun"),
        (1, 2, "horovodrun"),
    ]
