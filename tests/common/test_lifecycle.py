# SPDX-License-Identifier: Apache-2.0
"""The names that are not collectives: the same in every front end."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from horovod.common import lifecycle


@pytest.mark.parametrize("front_end", ["numpy", "torch", "jax", "mxnet", "tensorflow"])
def test_every_front_end_has_the_lifecycle_names(front_end):
    if front_end != "numpy":
        pytest.importorskip(front_end)
    module = importlib.import_module(f"horovod.{front_end}")
    missing = set(lifecycle.__all__) - set(module.__all__)
    assert not missing
    own = {"barrier"} if front_end in ("jax", "tensorflow") else set()  # refused inside of programs there
    for name in set(lifecycle.__all__) - own:
        assert getattr(module, name) == getattr(lifecycle, name), name


SHUTS_DOWN = """
import sys
import horovod.numpy as hvd
from horovod.common.basics import basics

basics.before_shutdown(lambda: print("finished", hvd.is_initialized(), flush=True))
hvd.init()
{end}
"""


@pytest.mark.parametrize(
    "end, expected",
    [
        ("hvd.shutdown()", "finished True\n"),
        ("", "finished True\n"),
        ("hvd.shutdown(); hvd.init(); hvd.shutdown()", "finished True\nfinished True\n"),
        ("raise ValueError", ""),  # others may be waiting for this rank to leave
        ("try: raise ValueError\nfinally: hvd.shutdown()", ""),
        ("sys.exit(3)", ""),
    ],
)
def test_what_runs_in_the_background_is_finished_before_shutdown(end, expected):
    done = subprocess.run([sys.executable, "-c", SHUTS_DOWN.format(end=end)], capture_output=True, text=True)
    assert done.stdout == expected, done.stderr


def test_shutdown_goes_on_when_what_was_in_the_background_had_failed():
    script = SHUTS_DOWN.format(end="hvd.shutdown(); print(hvd.is_initialized())").replace(
        'print("finished", hvd.is_initialized(), flush=True)', "1 / 0"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
