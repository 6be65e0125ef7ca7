# SPDX-License-Identifier: Apache-2.0
"""The snippets of docs/mxnet.md run, one after the other, on one process and on two."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from world import ROOT, worker_env


def snippets(path):
    """The Python blocks of a document, joined."""
    with open(os.path.join(ROOT, path)) as document:
        return "\n".join(re.findall(r"```python\n(.*?)```", document.read(), re.DOTALL))


LAUNCH = (
    "import sys, horovod; horovod.run(exec, (sys.argv[1], {'__name__': '__main__'}), np=int(sys.argv[2]))"
)


@pytest.mark.parametrize("size", [1, 2])
def test_snippets(size):
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, snippets("docs/mxnet.md"), str(size)],
        env=worker_env(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("loss") == 1, done.stdout
