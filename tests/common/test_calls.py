# SPDX-License-Identifier: Apache-2.0
"""Both ways into the engine, ctypes and the interpreter's own calls, do and refuse the same."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from engine_calls import WAYS, calls_by
from tests_support import check_close, shared_world
from world import ROOT, worker_env

from horovod.common import _calls

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
DTYPES += ["float16", "float32", "float64", "longlong", "ulonglong", "intc", "uintc"]


def by_the_interpreter() -> None:
    calls = _calls._native_calls()
    assert set(calls) == set(_calls._BY_CTYPES)
    assert all(type(call) is type(len) for call in calls.values())


def test_this_interpreter_has_what_the_calls_need():
    by_the_interpreter()


def every_form(way: str) -> list:
    """What the forms of allreduce and broadcast give, by name."""
    import horovod.numpy as hvd

    rank, size = hvd.rank(), hvd.size()
    wrong = []

    def compare(got, want, what):
        wrong.append(check_close(got, want, f"{way}: {what}"))

    with calls_by(way):
        for number, dtype in enumerate(DTYPES):
            of_rank = [(np.arange(6).reshape(2, 3) + r).astype(dtype) for r in range(size)]
            mine, total = of_rank[rank], sum(of_rank).astype(dtype)
            name = f"{way}.{number}"
            more = {"op": hvd.Sum, "name": name}
            compare(hvd.allreduce(mine, **more), total, dtype)
            compare(hvd.synchronize(hvd.allreduce_async(mine, **more)), total, dtype)
            for form in (hvd.allreduce_, lambda x, **m: hvd.synchronize(hvd.allreduce_async_(x, **m))):
                copy = mine.copy()
                assert form(copy, **more) is copy
                compare(copy, total, dtype)
            for form in (hvd.grouped_allreduce, hvd.grouped_allreduce_):
                got = form([mine.copy(), mine.copy()], **more)
                compare(got[1], total, f"grouped {dtype}")
            got = hvd.synchronize(hvd.grouped_allreduce_async([mine.copy()], **more))
            compare(got[0], total, f"group of one {dtype}")
            compare(hvd.broadcast(mine, size - 1, name=f"{name}.b"), of_rank[-1], dtype)
        hvd.barrier()
        scaled = hvd.allreduce(
            np.ones(3), name=f"{way}.s", op=hvd.Sum, prescale_factor=0.5, postscale_factor=4
        )
        compare(scaled, np.full(3, 2.0 * size), "scaled")
        compare(
            hvd.allreduce(np.float32(rank), name=f"{way}.0", op=hvd.Sum), np.float32(sum(range(size))), "0-d"
        )
    return [one for one in wrong if one]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 2])
def test_every_form_gives_the_same(way, size):
    assert shared_world(size).run(every_form, way) == [[]] * size


def unusual_arrays(way: str) -> None:
    """What is not dense memory of a known type goes the general way, with the general way's words."""
    import ml_dtypes

    import horovod.numpy as hvd

    more = {"op": hvd.Sum, "name": f"{way}.unusual"}
    size = hvd.size()
    with calls_by(way):
        strided = np.ones((4, 4), np.float32)[:, ::2]
        assert hvd.allreduce_(strided, **more) is strided
        assert (strided == size).all() and hvd.allreduce(np.ones((2, 3)).T, **more).shape == (3, 2)
        assert hvd.allreduce(np.ones(2, ml_dtypes.bfloat16), **more).tolist() == [size, size]
        assert hvd.allreduce([1, 2], **more).tolist() == [size, 2 * size]
        assert hvd.allreduce(np.ones((0, 3)), **more).shape == (0, 3)
        assert hvd.allreduce(np.ones(2), op=hvd.Sum).tolist() == [size, size]  # unnamed
        frozen = np.ones(2)
        frozen.flags.writeable = False
        assert hvd.allreduce(frozen, **more).tolist() == [size, size]
        with pytest.raises(ValueError, match="read-only"):
            hvd.allreduce_(frozen, **more)
        with pytest.raises(ValueError, match="complex64 is not supported"):
            hvd.allreduce(np.ones(2, np.complex64), **more)
        with pytest.raises(ValueError, match=">f4 is not supported"):
            hvd.allreduce(np.ones(2, ">f4"), **more)
        with pytest.raises(ValueError, match="NUL"):
            hvd.allreduce(np.ones(2), op=hvd.Sum, name="a\0b")
        with pytest.raises(ValueError, match="not valid Unicode"):
            hvd.allreduce(np.ones(2), op=hvd.Sum, name="\ud800")
        with pytest.raises(ValueError, match="not numbers that"):
            hvd.allreduce(np.ones(2), prescale_factor="half", **more)
        with pytest.raises(ValueError, match="invalid root rank 1099511627776"):
            hvd.broadcast(np.ones(2), 2**40, name=f"{way}.root")
        with pytest.raises(ValueError, match="process_set"):
            hvd.allreduce(np.ones(2), process_set=2**40, **more)
        with pytest.raises(ValueError, match="does not exist"):
            hvd.allreduce(np.ones(2), process_set=17, **more)
        with pytest.raises(ValueError, match="bool values is not defined"):
            hvd.allreduce(np.ones(2, bool), name=f"{way}.mean")
        assert hvd.grouped_allreduce([], **more) == []
        assert [g.tolist() for g in hvd.grouped_allreduce((one for one in [np.ones(1), [2.0]]), **more)] == [
            [size], [2 * size],
        ]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_unusual_arguments_mean_the_same(way):
    pytest.importorskip("ml_dtypes")
    shared_world(2).run(unusual_arrays, way)


def disagreement(way: str) -> None:
    import horovod.numpy as hvd
    from horovod.common.exceptions import RanksDisagree

    shape = 2 + hvd.rank()
    with calls_by(way):
        for form in (hvd.allreduce, hvd.allreduce_):
            with pytest.raises(RanksDisagree, match="Mismatched ALLREDUCE tensor shapes"):
                form(np.ones(shape), name=f"{way}.disagree")
        handle = hvd.allreduce_async(np.ones(shape), name=f"{way}.disagree")
        with pytest.raises(RanksDisagree, match="Mismatched ALLREDUCE tensor shapes"):
            hvd.synchronize(handle)
        with pytest.raises(ValueError, match="was not created or has been cleared"):
            hvd.synchronize(handle)
        hvd.barrier()


@pytest.mark.parametrize("way", WAYS)
def test_disagreement_is_raised(way):
    shared_world(2).run(disagreement, way)


def name_taken(way: str) -> None:
    import horovod.numpy as hvd

    with calls_by(way):
        if hvd.rank() == 0:
            first = hvd.allreduce_async(np.ones(2), name=f"{way}.taken")
            with pytest.raises(ValueError, match="same name as another tensor"):
                hvd.allreduce(np.ones(2), name=f"{way}.taken")
        hvd.barrier()
        if hvd.rank() != 0:
            first = hvd.allreduce_async(np.ones(2), name=f"{way}.taken")
        hvd.synchronize(first)


@pytest.mark.parametrize("way", WAYS)
def test_a_name_under_way_is_refused(way):
    shared_world(2).run(name_taken, way)


def waits_without_the_gil(way: str) -> None:
    """While a call waits for the other rank, this rank's other threads run: one of them brings it on."""
    import horovod.numpy as hvd

    with calls_by(way):
        others = threading.Thread(target=hvd.allreduce, args=(np.ones(2),), kwargs={"name": f"{way}.second"})
        if hvd.rank() == 0:
            others.start()
            hvd.allreduce(np.ones(2), name=f"{way}.first")
        else:
            hvd.allreduce(np.ones(2), name=f"{way}.second")
            others = threading.Thread(
                target=hvd.allreduce, args=(np.ones(2),), kwargs={"name": f"{way}.first"}
            )
            others.start()
        others.join(60)
        assert not others.is_alive()


@pytest.mark.parametrize("way", WAYS)
def test_who_waits_leaves_the_gil(way):
    shared_world(2).run(waits_without_the_gil, way)


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
import horovod.numpy as hvd
from horovod.common import _native, engine, observation
hvd.init()
def press_ctrl_c():
    while not observation.now().get("name", "").endswith("late"):
        time.sleep(0.001)
    time.sleep(float(os.environ["LATER"]))
    os.kill(os.getpid(), signal.SIGINT)
if hvd.rank() == 0:
    threading.Thread(target=press_ctrl_c).start()
    try:
        hvd.allreduce_(np.ones(4), name="late")
    except KeyboardInterrupt:
        print("interrupted", len(engine.abandoned), flush=True)
hvd.broadcast(np.ones(1), 0, name="go on")
if hvd.rank() == 1:
    hvd.allreduce_(np.ones(4), name="late")
hvd.barrier()
while any(_native.lib().hvd_poll(handle) == 0 for handle in engine.abandoned):
    time.sleep(0.01)  # the barrier needs no thread of the engine's, which may be later
hvd.synchronize(hvd.allreduce_async(np.ones(4), name="after"))
print("left", len(engine.abandoned), flush=True)
"""


# A wait looks for signals every 0.2 s: while the engine is in the first of them Python has no handle yet.
@pytest.mark.parametrize("later", ["0", "0.5"])
@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_ends_a_blocked_call_and_its_memory_stays(way, later, tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", sys.executable, str(script)]
    done = subprocess.run(
        command,
        env=worker_env({"HOROVOD_CALLS": way, "LATER": later}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "interrupted 1" in done.stdout and done.stdout.count("left 0") == 2


def test_fallback_is_what_the_variable_asks_for():
    code = "from horovod.common import _calls; print(_calls.wait is _calls._BY_CTYPES['wait'])"
    for way, want in (("ctypes", "True"), ("", "False")):
        env = {**os.environ, "HOROVOD_CALLS": way, "PYTHONPATH": ROOT}
        assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True).strip() == want
