# SPDX-License-Identifier: Apache-2.0
"""horovod.run: functions in, results and exceptions out."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
import warnings

import pytest
from launching import environment, still_there

import horovod
from horovod.runner import RemoteTraceback


def rank():
    return int(os.environ["HOROVOD_RANK"])


class OnlyHere(Exception):
    """Cannot be pickled: the lock stays where it is."""

    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


def test_results_come_in_rank_order():
    def work(base, *, scale):
        time.sleep(0.2 * (2 - int(os.environ["HOROVOD_RANK"])))  # the last finishes first
        return base + scale * int(os.environ["HOROVOD_RANK"])

    assert horovod.run(work, (100,), {"scale": 10}, np=3) == [100, 110, 120]


def test_closures_lambdas_and_large_results():
    captured = {"a": [1, 2, 3]}
    assert horovod.run(lambda: (captured, "x" * 5_000_000), num_proc=2) == [(captured, "x" * 5_000_000)] * 2


def test_one_rank_is_the_default():
    assert horovod.run(lambda: os.environ["HOROVOD_SIZE"]) == ["1"]


def test_collectives_inside():
    def work():
        import numpy as np

        import horovod.numpy as hvd

        hvd.init()
        return hvd.allreduce(np.full(3, hvd.rank() + 1.0), op=hvd.Sum).tolist()

    assert horovod.run(work, np=2) == [[3.0] * 3] * 2


def test_exceptions_keep_their_type_and_bring_their_traceback():
    def work():
        if int(os.environ["HOROVOD_RANK"]) == 1:
            raise KeyError("the reason")
        time.sleep(1000)

    with pytest.raises(KeyError, match="the reason") as caught:
        horovod.run(
            work,
            np=2,
        )
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "rank 1 on host localhost raised" in str(cause) and "in work" in str(cause)


def test_exceptions_that_cannot_travel_arrive_as_text():
    def work():
        raise OnlyHere("stuck")

    with pytest.raises(RuntimeError, match=r"(?s)rank 0 on host localhost raised.*OnlyHere: stuck"):
        horovod.run(work)


def test_the_cause_is_raised_not_its_echo():
    def work():
        import numpy as np

        import horovod.numpy as hvd

        hvd.init()
        if hvd.rank() == 2:
            raise ZeroDivisionError("on purpose")
        hvd.allreduce(np.ones(3))

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        horovod.run(work, np=3)


def test_a_rank_that_dies_is_reported_and_the_others_end(tmp_path):
    def work():
        (tmp_path / os.environ["HOROVOD_RANK"]).write_text(str(os.getpid()))
        if int(os.environ["HOROVOD_RANK"]) == 1:
            while sum(bool(path.read_text()) for path in tmp_path.iterdir()) < 2:
                time.sleep(0.01)
            os._exit(5)
        time.sleep(1000)

    with pytest.raises(RuntimeError, match=r"(?s)Process name: 1\nExit code: 5\nHost: localhost"):
        horovod.run(work, np=2)
    assert still_there([int(path.read_text()) for path in tmp_path.iterdir()]) == []


def test_leaving_without_a_result_is_named():
    with pytest.raises(RuntimeError, match="rank 0 ended without returning a result"):
        horovod.run(lambda: os._exit(0))


def test_from_a_thread_and_into_a_notebook(monkeypatch):
    """A notebook has neither a main thread for us nor a binary standard output."""
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    results = []
    thread = threading.Thread(target=lambda: results.append(horovod.run(lambda: print("hello"), np=2)))
    thread.start()
    thread.join(60)
    assert results == [[None, None]]
    assert sorted(out.getvalue().splitlines()) == ["[0]<stdout>:hello", "[1]<stdout>:hello"]


def test_the_environment_can_be_given(tmp_path):
    env = dict(os.environ, ONLY_HERE="yes")
    assert horovod.run(lambda: os.environ["ONLY_HERE"], np=1, env=env) == ["yes"]
    assert "ONLY_HERE" not in os.environ


def test_settings_are_keywords_too():
    names = ("HOROVOD_FUSION_THRESHOLD", "HOROVOD_STALL_CHECK_DISABLE")
    show = lambda: [os.environ[name] for name in names]  # noqa: E731
    assert horovod.run(show, np=1, fusion_threshold_mb=2, no_stall_check=True) == [[str(2 << 20), "1"]]
    with pytest.raises(ValueError, match="cache_capacity=-1 must be >= 0"):
        horovod.run(show, cache_capacity=-1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'fusion_treshold_mb'"):
        horovod.run(show, fusion_treshold_mb=1)


def test_ctrl_c_is_a_keyboard_interrupt():
    """In a script, Ctrl-C ends the workers and raises what Python raises."""
    code = (
        "import horovod, os, signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's & leaves it ignored
        "def work():\n"
        "    os.kill(int(os.environ['CALLER']), signal.SIGINT)\n"
        "    time.sleep(1000)\n"
        "os.environ['CALLER'] = str(os.getpid())\n"
        "try: horovod.run(work, np=1)\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and done.stdout == "interrupted\n", done.stderr


def test_output_files(tmp_path):
    horovod.run(lambda: print("hi"), np=1, output_filename=str(tmp_path / "o"))
    assert (tmp_path / "o" / "rank.0" / "stdout").read_text() == "[0]<stdout>:hi\n"


@pytest.mark.parametrize("given", ["lo", " lo ,", ["lo"]], ids=repr)
def test_interfaces_are_a_list_or_one_text_and_win_over_the_environment(given):
    names = ("HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME")
    env = environment(NCCL_SOCKET_IFNAME="ib0")
    show = lambda: [os.environ[name] for name in names]  # noqa: E731
    assert horovod.run(show, np=1, env=env, network_interfaces=given) == [["lo", "lo"]]
    assert env["NCCL_SOCKET_IFNAME"] == "ib0"


WRONG = [
    ({"hosts": "a:1", "hostfile": "f"}, ValueError, "Argument hosts and hostfile only allow one provided."),
    (
        {"use_gloo": True, "use_mpi": True},
        ValueError,
        "Argument use_gloo and use_mpi only allow one set True.",
    ),
    ({"np": 3, "hosts": "localhost:2"}, ValueError, "Requested more processes"),
    (
        {"np": 0},
        ValueError,
        r"horovod.run\(num_proc=0\): the number of ranks must be an integer of 1 or",
    ),
    ({"np": -2}, ValueError, "must be an integer of 1 or more"),
    ({"np": "2"}, ValueError, r"num_proc='2'\): the number of ranks must be an integer"),
    ({"num_proc": True}, ValueError, "num_proc=True"),
    ({"np": 10**8}, ValueError, "100000000 processes on this host need"),
    ({"np": 2, "min_num_proc": 3}, ValueError, "--min-np 3 must be at least 1 and at most -np 2"),
    (
        {"np": 2, "min_num_proc": 1, "use_mpi": True},
        ValueError,
        "elastic jobs cannot be started with use_mpi",
    ),
    ({"host_discovery_script": "exit 3"}, RuntimeError, "discovery script: exit 3. Exit code: 3"),
]


@pytest.mark.parametrize("options, kind, message", WRONG, ids=[row[2] for row in WRONG])
def test_wrong_arguments(options, kind, message):
    with pytest.raises(kind, match=message):
        horovod.run(lambda: None, **options)


def test_what_cannot_be_sent_is_named():
    lock = threading.Lock()
    with pytest.raises(ValueError, match="cannot send the function to the workers.*create them inside"):
        horovod.run(lambda: lock)


def test_old_names_still_work():
    with pytest.warns(DeprecationWarning, match="network_interface is deprecated"):
        assert horovod.run(lambda: 1, network_interface="lo") == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert horovod.run(lambda: 1, np=1) == [1]
