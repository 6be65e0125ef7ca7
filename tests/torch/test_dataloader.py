# SPDX-License-Identifier: Apache-2.0
"""DataLoader workers, forked or spawned, while collectives run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from tests_support import run_world

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def loads(method: str) -> None:
    import horovod.torch as hvd

    hvd.init()
    model = torch.nn.Linear(3, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))
    data = torch.utils.data.TensorDataset(torch.randn(40, 3))
    sampler = torch.utils.data.DistributedSampler(data, hvd.size(), hvd.rank())
    loader = torch.utils.data.DataLoader(
        data, batch_size=4, sampler=sampler, num_workers=1, multiprocessing_context=method
    )
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_issue_1215(method):
    """Workers that load data crashed or hung."""
    run_world(loads, 2, args=(method,))


def test_a_forked_child_is_told():
    """It has no engine of its own; using one is an error, not a hang, and the parent is not disturbed."""
    script = """
        import os, sys, torch
        import horovod.torch as hvd
        hvd.init()
        pid = os.fork()
        if pid == 0:
            try:
                hvd.allreduce(torch.ones(1))
            except Exception as error:
                os._exit(7 if "fork" in str(error) or "initialized" in str(error) else 8)
            os._exit(9)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert hvd.allreduce(torch.ones(1)).item() == 1
        sys.exit(code)
    """
    env = dict(os.environ, PYTHONPATH=ROOT)
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=env, timeout=300)
    assert done.returncode == 7
