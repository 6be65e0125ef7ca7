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


def test_a_full_disk_ends_the_file_valid_and_says_so(tmp_path):
    """The limit on the size of a file stands in for the end of the disk: writing fails half way."""
    path = tmp_path / "trace.json"
    script = """
import resource
hvd.init()
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
hvd.allreduce(np.ones(2, np.float32), name="tensor 0")
while "tensor 0" not in open(os.environ["HOROVOD_TIMELINE"]).read():
    time.sleep(0.01)
for i in range(1, 1000):
    hvd.allreduce(np.ones(2, np.float32), name=f"tensor {i}")
say(hvd.allreduce([1.0], op=hvd.Sum).tolist())
sys.stdin.read()
"""
    with Processes(script, 1, env={"HOROVOD_TIMELINE": str(path)}) as ranks:
        assert ranks.heard(0, timeout=120) == [1.0], "the job does not suffer"
        log = ranks.wait_for_stderr(0, "could not be continued")
        assert str(path) in log and "File too large" in log and "complete up to this point" in log
        events = json.loads(path.read_text())
    assert os.path.getsize(path) <= 20000
    assert "tensor 0" in str(events) and "tensor 999" not in str(events)


def test_a_pipe_as_the_file_does_not_hold_up_init(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    script = "hvd.init()\nsay(hvd.allreduce([1.0]).tolist())\n"
    with Processes(script, 1, env={"HOROVOD_TIMELINE": str(tmp_path / "pipe")}) as ranks:
        assert ranks.heard(0) == [1.0]
        assert "Error opening the Horovod Timeline file" in ranks.wait_for_stderr(
            0, "will not write a timeline"
        )


def test_any_name_makes_valid_json(tmp_path):
    """Names are bytes to the engine; what is not text, and what JSON would read otherwise, is escaped."""
    path = tmp_path / "trace.json"
    script = r"""
import ctypes
from horovod.common import _native, constants as c, engine
hvd.init()
names = [b'quote " and backslash \\', b"line\nbreak\ttab\x01", "grün ∑ 😀".encode()]
names += [b"not utf-8: \xff\xc3(", b"\xed\xa0\x80"]
for name in names:
    request = engine.request(c.BARRIER, "placeholder", c.UINT8, (), 0)
    buffer = ctypes.create_string_buffer(name)
    request.name = ctypes.addressof(buffer)
    engine.run_released(request)
hvd.stop_timeline()
say("done")
"""
    with Processes(script, 1, env={"HOROVOD_TIMELINE": str(path)}) as ranks:
        assert ranks.heard(0) == "done"
    events = json.loads(path.read_text())
    names = [e["args"]["name"] for e in events if e.get("name") == "process_name" and e["pid"] > 0]
    assert names[:3] == ['quote " and backslash \\', "line\nbreak\ttab\x01", "grün ∑ 😀"]
    assert names[3] == "not utf-8: \ufffd\ufffd(" and set(names[4]) == {"\ufffd"}


def test_a_file_that_cannot_be_opened_is_an_error_in_the_log_only(tmp_path):
    script = "hvd.init()\nsay(hvd.allreduce([1.0]).tolist())\n"
    with Processes(script, 1, env={"HOROVOD_TIMELINE": str(tmp_path / "no" / "such" / "dir.json")}) as ranks:
        assert ranks.heard(0) == [1.0]
        ranks.finish()
        time.sleep(0.1)
        assert "Error opening the Horovod Timeline file" in ranks.stderr(0)
