# SPDX-License-Identifier: Apache-2.0
"""Timelines of hosts whose clocks differ, by 1000 seconds: of the day, or since the start of the machine."""

from __future__ import annotations

import os
import subprocess

import pytest
from clocks import clock_offset_us
from processes import Processes
from shared_library import compiled
from waiting import until

from horovod.common import timelines

SKEW_S = 1000
# What measuring a clock over a connection of a busy machine may be wrong by.
SLACK_US = 100_000

# On rank 1, the time of day is another one: for everything in the process, as on a host whose clock is wrong.
WRONG_CLOCK = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec* time) {
  int status = syscall(SYS_clock_gettime, clock, time);
  const char* rank = getenv("HOROVOD_RANK");
  if (clock == CLOCK_REALTIME && rank && !strcmp(rank, "1")) time->tv_sec += SKEW;
  return status;
}
"""

SCRIPT = """
hvd.init()
say(time.time())
say(time.monotonic())
while not hvd.allreduce([float(os.path.exists(os.environ["GO"]))], op=hvd.Max, name="end")[0]:
    time.sleep(0.01)
for step in range(5):
    hvd.allreduce(np.ones(100_000, np.float32), name="gradient")
hvd.mark("now")
hvd.barrier()
hvd.stop_timeline()
say("done")
"""


def wrong_time_of_day(folder):
    """Environment and prefix of a job whose rank 1 has this."""
    clock = compiled(folder / "clock.so", WRONG_CLOCK, f"-DSKEW={SKEW_S}")
    return {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {clock}".strip()}, []  # a sanitizer is first


def other_time_since_the_start(folder):
    """The same, in a time namespace."""
    inside = ["unshare", "--time", "--monotonic", str(SKEW_S), "--fork", "--kill-child"]
    tried = subprocess.run([*inside, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no time namespaces here: {tried.stderr.strip()}")
    only_rank_1 = f'if [ "$HOROVOD_RANK" = 1 ]; then exec {" ".join(inside)} "$@"; fi; exec "$@"'
    return {}, ["sh", "-c", only_rank_1, "sh"]


@pytest.mark.parametrize("clocks", [wrong_time_of_day, other_time_since_the_start])
def test_collectives_happen_at_one_time_on_all_ranks(tmp_path, clocks):
    env, prefix = clocks(tmp_path)
    paths = [str(tmp_path / "trace.json"), str(tmp_path / "trace.rank1.json")]
    env = {**env, "HOROVOD_TIMELINE": paths[0], "GO": str(tmp_path / "go")}
    by_day = clocks is wrong_time_of_day
    with Processes(SCRIPT, 2, env=env, hosts=["here", "there"], prefix=prefix) as ranks:
        times = [[ranks.heard(rank) for _ in range(2)] for rank in range(2)]
        differences = [there - here for here, there in zip(*times)]
        assert (abs(differences[0]) > SKEW_S / 2) == by_day, "the clocks do differ"
        assert (abs(differences[1]) > SKEW_S / 2) == (not by_day)
        right = -SKEW_S * 1e6 if by_day else 0
        # Who measures while the machine is busy may be wrong by more, and measures again.
        until(lambda: abs(clock_offset_us(paths[1]) - right) < SLACK_US, "the clock was measured")
        (tmp_path / "go").touch()
        assert [ranks.heard(rank) for rank in range(2)] == ["done"] * 2
    offset = timelines.identity(timelines.read(paths[1]))["clock_offset_us"]
    assert offset == pytest.approx(right, abs=SLACK_US)
    merged = timelines.merge(paths)
    spans = {}
    for event in merged:
        if event["ph"] == "B" and event.get("name") == "ALLREDUCE" and "gradient" in event["args"]["tensor"]:
            spans.setdefault(event["args"]["seq"], []).append([event["ts"], event["pid"]])
        elif event["ph"] == "E" and "dtype" in event.get("args", {}):
            for begun in (one for same in spans.values() for one in same):
                if begun[1] == event["pid"] and len(begun) == 2:
                    begun.append(event["ts"])
    assert len(spans) == 5
    for same in spans.values():
        assert len(same) == 2
        # It ends nowhere before it has begun everywhere.
        assert max(begin for begin, _, _ in same) <= min(end for _, _, end in same) + SLACK_US
    marks = [event["ts"] for event in merged if event.get("name") == "MARK"]
    assert len(marks) == 2 and max(marks) - min(marks) < SKEW_S * 1e6 / 100
