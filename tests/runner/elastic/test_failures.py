# SPDX-License-Identifier: Apache-2.0
"""Whose fault it was."""

from __future__ import annotations

import pytest

from horovod.runner.elastic.failures import Places, place_of
from horovod.runner.supervision import WorkerFailure

DEEP = [
    "Traceback (most recent call last):",
    '  File "/home/me/train.py", line 41, in <module>',
    '  File "/usr/lib/python3/site-packages/torch/nn.py", line 7, in forward',
    "torch.OutOfMemoryError: CUDA out of memory",
]


@pytest.mark.parametrize(
    "code, tail, place",
    [
        (1, DEEP, "torch.OutOfMemoryError at /home/me/train.py:41"),
        (1, DEEP[:2] + ["KeyError: 'x'"], "KeyError at /home/me/train.py:41"),
        (1, [*DEEP[:2], "horovod.common.exceptions.HorovodInternalError: rank 3 died"], None),
        (137, DEEP, None),
        (143, [], None),
        (139, [], "exit code 139"),
        (2, ["python: can't open file"], "exit code 2: python: can't open file"),
        (9, [], "exit code 9: "),
    ],
)
def test_places(code, tail, place):
    assert place_of(WorkerFailure(0, "a", code, tail)) == place


def test_verdicts():
    places = Places()
    places.note("x", "a", 0.0)
    assert places.verdict("x", ["b"]) == ""
    places.note("x", "a", 100.0)
    assert places.verdict("x", ["b"]) == "host" and places.verdict("x", []) == "script"
    places.note("x", "b", 101.0)
    assert places.verdict("x", ["c"]) == "script"
    assert places.verdict("y", []) == ""
    places.note("x", "a", 5000.0)
    assert places.verdict("x", []) == "", "an hour later it may be chance again"
