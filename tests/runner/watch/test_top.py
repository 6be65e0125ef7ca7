# SPDX-License-Identifier: Apache-2.0
"""horovodrun --top: on a terminal, and where there is none."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

from launching import HOROVODRUN, default_signals, environment
from watching import SCRIPT, WatchedJob

from horovod.runner.watch.collector import Collector
from horovod.runner.watch.top import screen, summary


def test_a_job_on_a_terminal(tmp_path):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    end = tmp_path / "end"
    process = subprocess.Popen(
        [*HOROVODRUN, "-np", "2", "--top", sys.executable, SCRIPT, "--until", str(end)],
        env=environment(TERM="xterm"), stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=default_signals,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    seen = ""
    deadline = time.monotonic() + 60
    try:
        while not re.search(r"\b1 localhost.*(computing|waiting|communicating)", seen):
            assert time.monotonic() < deadline, seen
            seen += _read(ours)
        end.touch()
        deadline = time.monotonic() + 60
        while process.poll() is None or select.select([ours], [], [], 0)[0]:
            assert time.monotonic() < deadline, seen
            part = _read(ours)
            if not part and process.poll() is not None:
                break
            seen += part
    finally:
        process.terminate()
        process.wait()
        os.close(ours)
    assert process.returncode == 0
    assert seen.startswith("\x1b[?1049h") and "\x1b[?1049l" in seen
    drawn, left = seen.split("\x1b[?1049l")
    assert "2 ranks" in drawn and "watched.py" in drawn
    # What the ranks printed did not disturb the table, and stays when it is gone.
    assert "trains in process" not in drawn.split("\x1b[H")[1].split("\n")[0]
    assert re.search(r"\[0\]<stdout>:rank 0 trains in process \d+", left)


def _read(descriptor):
    if not select.select([descriptor], [], [], 0.2)[0]:
        return ""
    try:
        return os.read(descriptor, 1 << 16).decode(errors="replace")
    except OSError:  # the other end is closed
        return ""


def test_without_a_terminal_lines_stay_plain(tmp_path):
    open(tmp_path / "stuck", "w").close()
    with WatchedJob(tmp_path, 2, "--top", stuck_rank=1) as job:
        job.wait_for_ranks()  # their output is where it always is
        job.said("horovodrun: rank 1 on localhost has kept the others waiting")
        os.unlink(job.stuck)
        assert job.finish() == 0, job.err
    assert not any("\x1b" in line for line in job.out + job.err)


def test_those_who_need_attention_are_shown_where_there_is_no_room_for_all():
    collector = Collector("train\x1b[2J.py", 0.0)
    for rank in range(100):
        collector.started(str(rank), "node7", rank)
        collector.reported(str(rank), {"rank": rank, "now": {"state": "idle"}, "where": "a.py:1"}, 9.0)
    collector.ranks["93"].heard = 1.0
    lines = screen(collector.view(10.0), [], ["x" * 500], os.terminal_size((90, 20)))
    plain = [re.sub(r"\x1b\[\d*m|\x1b\[K", "", line) for line in lines]
    assert len(lines) == 20 and all(len(line) <= 90 for line in plain)
    assert re.match(r" +93 node7 .* silent", plain[4]) and "a.py:1" in plain[5]
    assert plain[0] == "train [2J.py" and any("... and 9" in line for line in plain)
    assert "1 not well" in summary(collector.view(10.0))
