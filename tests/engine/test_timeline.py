# SPDX-License-Identifier: Apache-2.0
"""The Chrome trace: complete while it grows, switchable, valid."""

from __future__ import annotations

import json
import os
import time

from processes import Processes
from tests_support import run_world


def test_events_reach_the_file_while_the_job_runs(tmp_path):
    path = tmp_path / "trace.json"
    script = """
hvd.init()
hvd.allreduce(np.ones((2, 3), np.float32), name="test_allreduce")
hvd.allgather(np.ones(3), name="gathered")
say("done")
sys.stdin.read()
"""
    env = {"HOROVOD_TIMELINE": str(path), "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    with Processes(script, 2, env=env) as ranks:
        assert ranks.heard(0) == "done" and ranks.heard(1) == "done"
        deadline = time.monotonic() + 10
        words = ["allreduce.test_allreduce", "NEGOTIATE_ALLREDUCE", "CYCLE_START", "allgather.gathered"]
        text = ""
        while time.monotonic() < deadline and not (
            all(word in text for word in words) and text.count('"ph": "B"') == text.count('"ph": "E"')
        ):
            time.sleep(0.05)
            text = path.read_text()
        for word in words:
            assert word in text, text
        events = json.loads(text)  # valid although it is still open
    assert events[0]["name"] == "process_name" and "start_time_since_epoch_in_micros" in events[0]["args"]
    tensors = {
        e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name" and e["pid"] > 0
    }
    assert "allreduce.test_allreduce" in tensors.values()
    for pid, name in tensors.items():
        opened = [e for e in events if e.get("pid") == pid and e["ph"] == "B"]
        closed = [e for e in events if e.get("pid") == pid and e["ph"] == "E"]
        assert len(opened) == len(closed) > 0, name
    ends = [e["args"] for e in events if e["ph"] == "E" and "args" in e]
    assert {"dtype": "float32", "shape": "[2, 3]"} in ends


def several_files(directory):
    import horovod.numpy as hvd

    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
    hvd.init()
    texts = []
    for i in range(4):
        path = os.path.join(directory, f"{i}.json")
        hvd.start_timeline(path, mark_cycles=i % 2 == 1)
        hvd.start_timeline(path, mark_cycles=i % 2 == 1)  # the same file again is harmless
        hvd.allreduce([1.0], name=f"tensor{i}")
        hvd.stop_timeline()
        hvd.barrier()
        if hvd.rank() == 0:
            with open(path) as file:
                texts.append(file.read())
    hvd.stop_timeline()
    return texts


def test_start_and_stop_as_often_as_wanted(tmp_path):
    texts = run_world(several_files, 2, args=(str(tmp_path),))[0]
    for i, text in enumerate(texts):
        json.loads(text)
        assert f"allreduce.tensor{i}" in text and "NEGOTIATE_ALLREDUCE" in text
        assert "start_time_since_epoch_in_micros" in text
        assert ("CYCLE_START" in text) == (i % 2 == 1)
        assert f"tensor{i + 1}" not in text


def test_a_file_that_cannot_be_opened_is_an_error_in_the_log_only(tmp_path):
    script = "hvd.init()\nsay(hvd.allreduce([1.0]).tolist())\n"
    with Processes(script, 1, env={"HOROVOD_TIMELINE": str(tmp_path / "no" / "such" / "dir.json")}) as ranks:
        assert ranks.heard(0) == [1.0]
        ranks.finish()
        time.sleep(0.1)
        assert "Error opening the Horovod Timeline file" in ranks.stderr(0)
