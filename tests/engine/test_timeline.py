# SPDX-License-Identifier: Apache-2.0
"""The Chrome trace: complete while it grows, switchable, valid."""

from __future__ import annotations

import json
import os
import signal

import pytest
from clocks import clock_offset_us
from processes import Processes
from tests_support import run_world
from waiting import until

from horovod.common import timelines


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
        words = ["allreduce.test_allreduce", "NEGOTIATE_ALLREDUCE", "CYCLE_START", "allgather.gathered"]
        texts = []

        def complete():
            texts.append(path.read_text())
            counts = {texts[-1].count(f'"ph": "{kind}"') for kind in "BE"}
            return all(word in texts[-1] for word in words) and len(counts) == 1 and texts[-1][-1] == "]"

        until(complete, "all events are in the file")
        events = json.loads(texts[-1])  # valid although it is still open
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
        assert "Error opening the Horovod Timeline file" in ranks.stderr(0)


EVERY_RANK = """
from horovod.common import observation
hvd.init()
hvd.mark("begin")
def known():  # to whoever counts it; rank 0 counts those of its host
    if hvd.local_size() == 3 and hvd.rank() == 0:
        return observation.now()["missing"] == [1]
    return observation.recent()[-1]["state"] == "announced"
for step in range(3):
    while step == 2 and hvd.rank() == 1 and not os.path.exists(os.environ["GO"]):
        time.sleep(0.01)
    handle = hvd.allreduce_async(np.ones(100_000, np.float32), name="gradient")
    if step == 2 and hvd.rank() != 1:
        while not known():
            time.sleep(0.01)
        say("waits for rank 1")
    hvd.synchronize(handle)
    hvd.allgather(np.ones(3), name="gathered")
    observation.step_done()
    say("step")
hvd.stop_timeline()
say("done")
"""


SLACK_US = 20_000


def spans(events, name):
    """(begin, end, arguments) of all spans of this name, in order."""
    open_now, found = {}, []
    for event in events:
        key = event.get("pid")
        if event["ph"] == "B":
            open_now.setdefault(key, []).append(event)
        elif event["ph"] == "E":
            begin = open_now[key].pop()
            if begin["name"] == name:
                found.append((begin["ts"], event["ts"], {**begin["args"], **event.get("args", {})}))
        elif event["ph"] == "X" and event["name"] == name:
            found.append((event["ts"], event["ts"] + event["dur"], event.get("args", {})))
    return found


@pytest.mark.parametrize("hosts", [["here", "here", "here"], ["here", "there", "there"]])
def test_every_rank_writes_its_own_and_they_fit_together(tmp_path, hosts):
    paths = [str(tmp_path / f"trace{part}.json") for part in ("", ".rank1", ".rank2")]
    env = {"HOROVOD_TIMELINE": paths[0], "GO": str(tmp_path / "go")}
    with Processes(EVERY_RANK, 3, env=env, hosts=hosts) as ranks:
        for rank in range(3):
            assert [ranks.heard(rank) for _ in range(2)] == ["step"] * 2
        assert [ranks.heard(rank) for rank in (0, 2)] == ["waits for rank 1"] * 2
        # It is one clock; who measures that when the machine is busy is wrong, and measures again.
        until(lambda: all(abs(clock_offset_us(path)) < SLACK_US for path in paths), "the clocks are known")
        (tmp_path / "go").touch()
        assert [ranks.heard(rank) for rank in (0, 1, 2) for _ in range(2)] == ["step", "done"] * 3
    for rank, path in enumerate(paths):
        events = timelines.read(path)
        who = timelines.identity(events)
        assert (who["rank"], who["size"], who["host"], who["version"]) == (rank, 3, hosts[rank], 2)
        reductions = spans(events, "ALLREDUCE")
        assert len(reductions) == 3 and len(spans(events, "ALLGATHER")) == 3
        for begin, end, args in reductions:
            assert 0 <= begin <= end and args["tensor"] == "allreduce.gradient" and args["bytes"] == 400_000
        last = reductions[-1][2]
        assert last["last_rank"] == 1 and (last["waited_us"] > 0) == (rank != 1)
        assert [args["last_rank"] for _, _, args in spans(events, "NEGOTIATE_ALLREDUCE")][-1] == 1
        apart = len(set(hosts)) > 1  # rank 2 then leaves the way between the hosts, and the sum, to rank 1
        for phase in ["PACK"] + ["REDUCE"] * (not apart or rank < 2) + ["WIRE"] * (apart and rank < 2):
            inside = spans(events, phase)
            assert inside, phase
            for begin, end, _ in inside:
                assert any(
                    first <= begin and end <= last + 1
                    for first, last, _ in [*reductions, *spans(events, "ALLGATHER")]
                )
        assert [e["args"]["n"] for e in events if e.get("name") == "STEP"] == [1, 2, 3]
        assert [e["args"]["text"] for e in events if e.get("name") == "MARK"] == ["begin"]
    merged = timelines.merge(paths)
    times = [event["ts"] for event in merged if "ts" in event]
    assert times == sorted(times) and len(times) == sum(
        len([event for event in timelines.read(path) if "ts" in event]) for path in paths
    )
    # A collective ends nowhere before it has begun everywhere.
    reductions = sorted(spans(merged, "ALLREDUCE"), key=lambda span: span[2]["seq"])
    for i in range(3):
        same = reductions[3 * i : 3 * i + 3]
        assert len({args["seq"] for _, _, args in same}) == 1
        slack = SLACK_US if len(set(hosts)) > 1 else 1
        assert max(begin for begin, _, _ in same) <= min(end for _, end, _ in same) + slack
    timelines.main([str(tmp_path / "all.json"), *paths])
    assert json.loads((tmp_path / "all.json").read_text()) == merged


def test_kill_9_leaves_valid_files(tmp_path):
    script = """
hvd.init()
say("ready")
i = 0
while True:
    hvd.allreduce(np.ones(10, np.float32), name=f"tensor {i % 50}")
    i += 1
"""
    paths = [tmp_path / "trace.json", tmp_path / "trace.rank1.json"]
    with Processes(script, 2, env={"HOROVOD_TIMELINE": str(paths[0])}) as ranks:
        assert [ranks.heard(rank) for rank in range(2)] == ["ready"] * 2
        # All have begun a second time, so all have ended once.
        until(
            lambda: all(path.exists() and path.read_text().count('"ph": "B"') > 4 * 50 for path in paths),
            "all tensors are in both files",
        )
        for rank in range(2):
            ranks.freeze(rank)  # else it may die in the middle of a write, which would be cut short
        for rank in range(2):
            ranks.kill(rank)
        assert ranks.finish() == [-signal.SIGKILL] * 2
    for path in paths:
        assert len(spans(timelines.read(str(path)), "ALLREDUCE")) > 49


def test_a_limit_keeps_the_newest_events(tmp_path):
    path = tmp_path / "trace.json"
    script = """
hvd.init()
for i in range(4000):
    hvd.allreduce(np.ones(1, np.float32), name=f"tensor {i if i % 2 else 0}")
    if i % 100 == 0:
        time.sleep(0.02)  # the writer takes its time, too
hvd.stop_timeline()
say("done")
"""
    env = {"HOROVOD_TIMELINE": str(path), "HOROVOD_TIMELINE_MAX_BYTES": "200000"}
    with Processes(script, 1, env=env) as ranks:
        assert ranks.heard(0, timeout=120) == "done"
    assert os.path.getsize(path) < 600_000
    assert not (tmp_path / "trace.json.new").exists()
    events = timelines.read(str(path))
    assert events[0]["name"] == "process_name" and "start_time_since_epoch_in_micros" in events[0]["args"]
    assert timelines.identity(events)["rank"] == 0
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name" and e["pid"]}
    assert "allreduce.tensor 3999" in names.values() and "allreduce.tensor 0" in names.values()
    assert "allreduce.tensor 1" not in names.values(), "the oldest are gone"
    assert {e["pid"] for e in events if e.get("pid")} <= set(names), "whose event this is can be told"


def test_what_is_no_timeline_is_refused_by_name(tmp_path):
    (tmp_path / "cut.json").write_text('[{"ph": "M"')
    (tmp_path / "other.json").write_text('[{"ph": "M", "name": "thread_name"}]')
    with pytest.raises(ValueError, match="cut.json is not a timeline"):
        timelines.merge([str(tmp_path / "cut.json")])
    with pytest.raises(ValueError, match="does not say whose it is"):
        timelines.merge([str(tmp_path / "other.json")])
