# SPDX-License-Identifier: Apache-2.0
"""What a job leaves when it fails or stalls, and what SIGQUIT makes a rank say."""

from __future__ import annotations

import json
import signal
import stat
import sys

import pytest
from processes import Processes
from waiting import until

from horovod.common import flight_file


def lines_of(folder):
    """What the ranks wrote down, by rank; there is one file."""
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, (
        "names of tensors and lines of scripts are nobody else's"
    )
    found = {}
    for line in path.read_text().splitlines():
        one = json.loads(line)
        found.setdefault(one["rank"], []).append(one)
    return str(path), found


def test_survivors_of_a_death_leave_their_last_collectives_and_the_error_says_where(tmp_path):
    script = """
hvd.init()
for i in range(5):
    hvd.allreduce(np.ones(4, np.float32), name=f"layer {i}")
say("ready")
if hvd.rank() == 2:
    time.sleep(600)
attempt(lambda: hvd.allreduce(np.ones(4, np.float32), name="never"))
"""
    with Processes(script, 3, env={"HOROVOD_FLIGHT_RECORDER": str(tmp_path)}) as ranks:
        assert [ranks.heard(rank) for rank in range(3)] == ["ready"] * 3
        ranks.kill(2)
        texts = [ranks.heard(rank)["text"] for rank in range(2)]
        assert ranks.finish()[:2] == [0, 0]
    path, found = lines_of(tmp_path)
    assert sorted(found) == [0, 1] and all(len(lines) == 1 for lines in found.values())
    for text in texts:
        assert "lost rank 2" in text and f"What the ranks did last is in {path}." in text
    for (line,) in found.values():
        assert "lost rank 2" in line["why"] and line["size"] == 3
        assert [one["name"] for one in line["recent"][:5]] == [f"allreduce.layer {i}" for i in range(5)]
        assert [one["state"] for one in line["recent"][:5]] == ["done"] * 5


def test_an_exception_on_one_rank_is_such_a_failure_and_an_orderly_end_is_not(tmp_path):
    script = """
hvd.init()
hvd.allreduce(np.ones(4, np.float32), name="shared")
say("ready")
if hvd.rank() == 1 and os.environ.get("RAISE"):
    raise KeyError("no such column")
if os.environ.get("RAISE"):
    attempt(lambda: hvd.allreduce(np.ones(4, np.float32), name="never"))
"""
    for failing in ("", "1"):
        folder = tmp_path / f"failing{failing}"
        folder.mkdir()
        env = {"HOROVOD_FLIGHT_RECORDER": str(folder), "RAISE": failing}
        with Processes(script, 2, env=env) as ranks:
            assert [ranks.heard(rank) for rank in range(2)] == ["ready"] * 2
            if failing:
                text = ranks.heard(0)["text"]
            ranks.finish()
        if not failing:
            assert list(folder.iterdir()) == []
            continue
        path, found = lines_of(folder)
        assert "no such column" in text and path in text
        assert 0 in found and "no such column" in found[0][0]["why"]


PARTED = """
import threading
hvd.init()
threading.Thread(target=time.sleep, args=(600,), name="the loader", daemon=True).start()
hvd.allreduce(np.ones(4), name="conv2")
def goes_another_way():
    hvd.allreduce(np.ones(4), name="conv3")
def goes_with_the_others():
    hvd.allreduce(np.ones(4), name="conv4")
attempt(goes_another_way if hvd.rank() == 2 else goes_with_the_others)
"""


@pytest.mark.parametrize("hosts", [["here"] * 3, ["here", "here", "there"]])
def test_ranks_that_part_are_named_with_line_and_all_stacks(tmp_path, hosts):
    env = {
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "1",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "4",
        "HOROVOD_FLIGHT_RECORDER": str(tmp_path),
    }
    with Processes(PARTED, 3, env=env, hosts=hosts) as ranks:
        texts = [ranks.heard(rank)["text"] for rank in range(3)]
        assert ranks.finish() == [0, 0, 0]
        log = ranks.stderr(0)
    parted = "submitted 'allreduce.conv3' where the others submitted 'allreduce.conv4'"
    line = next(one for one in log.splitlines() if "rank 2 on" in one and "it went another way at" in one)
    assert parted in line and "in goes_another_way" in line, log
    for word in ('Thread "MainThread"', 'Thread "the loader"', "self._target(", "in goes_another_way"):
        assert word in log.split(line)[1], word
    path, found = lines_of(tmp_path)
    for rank, text in enumerate(texts):
        assert parted in text and path in text
        stall = found[rank][0]
        assert stall["why"].startswith("a stall:") and 'Thread "the loader"' in stall["stacks"]
        assert stall["now"]["state"] == "waiting"
        states = [(one["name"][10:], one["state"]) for one in stall["recent"]]
        assert states == [("conv2", "done"), ("conv3" if rank == 2 else "conv4", "announced")]


def test_off_and_the_default_folder(monkeypatch, tmp_path):
    assert flight_file.path("off", b"secret") == flight_file.path("OFF", b"") == ""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = flight_file.path("", b"secret")
    assert path == flight_file.path("", b"secret") != flight_file.path("", b"another")
    assert path.startswith(f"{tmp_path}/horovod-flight-") and "secret" not in path


@pytest.mark.parametrize("there", ["a link", "no folder"])
def test_where_nothing_can_be_written_nothing_is_claimed(tmp_path, there):
    script = """
from horovod.common import _native, flight_file
path = flight_file.path(os.environ["HOROVOD_FLIGHT_RECORDER"], b"")
if os.path.isdir(os.path.dirname(path)):
    os.symlink(os.environ["VALUABLE"], path)
hvd.init()
_native.lib().hvd_abort(b"enough")
attempt(lambda: hvd.allreduce(np.ones(4), name="never"))
"""
    (tmp_path / "valuable").write_text("untouched")
    folder = tmp_path if there == "a link" else tmp_path / "none"
    env = {"HOROVOD_FLIGHT_RECORDER": str(folder), "VALUABLE": str(tmp_path / "valuable")}
    with Processes(script, 1, env=env) as ranks:
        text = ranks.heard(0)["text"]
    assert "enough" in text and "did last" not in text
    assert (tmp_path / "valuable").read_text() == "untouched"


# Whoever runs the tests may ignore the signal, as a shell does for what it starts in the background.
CATCH = "signal.signal(signal.SIGQUIT, signal.SIG_DFL)\n"
QUIT = (
    CATCH
    + """
hvd.init()
hvd.allreduce(np.ones(4), name="before")
say("ready")
def waits_here():
    hvd.allreduce(np.ones(4), name="stuck")
if hvd.rank() == 0:
    waits_here()
else:
    time.sleep(600)
"""
)


def test_sigquit_makes_a_rank_say_what_it_does_and_the_job_goes_on():
    with Processes(QUIT, 2) as ranks:
        assert [ranks.heard(rank) for rank in range(2)] == ["ready"] * 2

        def answer():
            ranks.errors[0].clear()
            ranks.send(0, signal.SIGQUIT)
            text = ranks.wait_for_stderr(0, "\n----\n")
            assert "---- rank 0 on localhost, process" in text
            assert '"name": "allreduce.before"' in text and '"state": "done"' in text
            assert 'Thread "MainThread"' in text
            return text

        until(lambda: "in waits_here" in answer(), "rank 0 waits there")
        assert "in waits_here" in answer()
        assert all(process.poll() is None for process in ranks.processes)


def test_a_handler_of_the_users_own_stays_and_comes_first():
    script = """
signal.signal(signal.SIGQUIT, lambda *_: say("mine"))
hvd.init()
say("ready")
for _ in range(2):
    signal.sigtimedwait([], 0.01)
    os.kill(os.getpid(), signal.SIGQUIT)
    hvd.shutdown()
    hvd.init()
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
hvd.shutdown()
os.kill(os.getpid(), signal.SIGQUIT)
"""
    with Processes(script, 1) as ranks:
        assert [ranks.heard(0) for _ in range(3)] == ["ready", "mine", "mine"]
        assert ranks.finish() == [-signal.SIGQUIT], "and without Horovod the signal means what it meant"


def test_a_forked_child_does_not_answer():
    script = (
        CATCH
        + """
hvd.init()
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGQUIT)
    os._exit(7)
say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
hvd.allreduce(np.ones(1))
"""
    )
    with Processes(script, 1) as ranks:
        assert ranks.heard(0) == 7
        assert ranks.finish() == [0] and "----" not in ranks.stderr(0)


def test_horovodrun_passes_sigquit_on(tmp_path):
    """To the ranks, and not to the shell and the loaders around them, which it would end."""
    import subprocess

    from world import worker_env

    script = tmp_path / "train.py"
    script.write_text(
        "import os, subprocess, sys, time\nimport numpy as np\nimport horovod.numpy as hvd\n"
        "hvd.init()\nloader = subprocess.Popen(['sleep', '600'])\n"
        "hvd.allreduce(np.ones(2), name='ready')\nprint('ready', flush=True)\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n"
        "assert loader.poll() is None\nloader.kill()\nprint('all is well', flush=True)\n"
    )
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", "2"]
    command += ["sh", "-c", f"{sys.executable} {script}; exit $?"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=worker_env()
    ) as job:
        text = ""
        asked = False
        for line in job.stdout:
            text += line
            if text.count("ready") >= 2 and not asked:
                asked = True
                job.send_signal(signal.SIGQUIT)
            if text.count("stacks:") >= 2 and not (tmp_path / "go").exists():
                (tmp_path / "go").touch()
        assert job.wait() == 0, text
    assert text.count("all is well") == 2
    for rank in range(2):
        assert f"---- rank {rank} on" in text
