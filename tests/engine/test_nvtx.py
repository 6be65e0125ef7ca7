# SPDX-License-Identifier: Apache-2.0
"""NVTX ranges, into a stand-in for NVIDIA's library that writes down what it is told."""

from __future__ import annotations

import os
import re

import pytest
from processes import Processes
from shared_library import compiled

STAND_IN = r"""
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static _Atomic uint64_t next;
static void note(const char* what, uint64_t range, const char* text) {
  char path[4096];
  snprintf(path, sizeof path, "%s.%s", getenv("NVTX_LOG"), getenv("HOROVOD_RANK"));
  FILE* file = fopen(path, "a");
  fprintf(file, "%s %lu %s\n", what, (unsigned long)range, text);
  fclose(file);
}
uint64_t nvtxRangeStartA(const char* text) {
  uint64_t range = next++;
  note("start", range, text);
  return range;
}
void nvtxRangeEnd(uint64_t range) { note("end", range, ""); }
"""

SCRIPT = """
hvd.init()
for _ in range(3):
    hvd.allreduce(np.ones(3, np.float32), name="small")
hvd.grouped_allreduce([np.ones(3, np.float32)] * 4, name="group")
hvd.broadcast(np.ones(3), 0, name="all")
say("done")
"""


@pytest.fixture
def stand_in(tmp_path):
    """A folder with the library by both of its names."""
    path = compiled(tmp_path / "libnvToolsExt.so.1", STAND_IN)
    os.link(path, tmp_path / "libnvtx3interop.so.1")
    return tmp_path


def ranges(folder, **env):
    """What two ranks tell the library."""
    with Processes(SCRIPT, 2, env={"NVTX_LOG": str(folder / "log"), **env}) as ranks:
        assert [ranks.heard(rank) for rank in range(2)] == ["done"] * 2
        ranks.finish()
        errors = [ranks.stderr(rank) for rank in range(2)]
    logs = [folder / f"log.{rank}" for rank in range(2)]
    return [log.read_text().splitlines() if log.exists() else [] for log in logs], errors


@pytest.mark.parametrize("found", ["named", "by a profiler's presence"])
def test_every_batch_is_a_range(stand_in, found):
    if found == "named":
        env = {"HOROVOD_NVTX_LIBRARY": str(stand_in / "libnvToolsExt.so.1")}
    else:
        env = {"NVTX_INJECTION64_PATH": "/of/the/profiler.so", "LD_LIBRARY_PATH": str(stand_in)}
    for lines in ranges(stand_in, **env)[0]:
        started = {}
        for line in lines:
            kind, number, text = re.match(r"(start|end) (\d+) (.*)", line).groups()
            if kind == "start":
                started[number] = text
            else:
                started[number] += " (ended)"
        texts = list(started.values())
        assert texts.count("ALLREDUCE allreduce.small (ended)") == 3
        assert texts.count("ALLREDUCE grouped_allreduce.group_1of4 and 3 more (ended)") == 1
        assert texts.count("BROADCAST broadcast.all (ended)") == 1


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"NVTX_INJECTION64_PATH": "/of/the/profiler.so", "HOROVOD_DISABLE_NVTX_RANGES": "1"},
    ],
)
def test_none_without_a_profiler_or_where_switched_off(stand_in, env):
    assert ranges(stand_in, LD_LIBRARY_PATH=str(stand_in), **env)[0] == [[], []]


def test_a_library_that_is_none_is_a_warning(stand_in):
    (stand_in / "no.so").write_text("text")
    logs, errors = ranges(stand_in, HOROVOD_NVTX_LIBRARY=str(stand_in / "no.so"))
    assert logs == [[], []]
    assert all("There will be no NVTX ranges" in text and "no.so" in text for text in errors), errors
