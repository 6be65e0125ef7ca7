# SPDX-License-Identifier: Apache-2.0
"""horovod.run as an elastic job: results of those who finish, exceptions with their traceback."""

from __future__ import annotations

import os

import pytest
from launching import ROOT, environment

import horovod


def train(marker, fail):
    import signal

    import numpy as np

    import horovod.numpy as hvd
    from horovod.common.elastic import ObjectState

    hvd.init()
    state = ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, step=0)

    @hvd.elastic.run
    def loop(state):
        while state.step < 10:
            if fail and state.step == 4:
                raise KeyError("no such column")
            if state.step == 3 and hvd.rank() == 1 and not os.path.exists(marker):
                open(marker, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.allreduce(np.ones(1), name="x")
            state.step += 1
            state.commit()
        return state.step, hvd.rank(), hvd.size()

    return loop(state)


def test_results_of_those_who_finish(tmp_path):
    results = horovod.run(train, (str(tmp_path / "died"), False), num_proc=3, min_num_proc=2, max_num_proc=3)
    assert len(results) >= 2
    assert results == [(10, rank, results[0][2]) for rank in range(len(results))], (
        "in the order of their ranks"
    )


def test_an_exception_comes_back(tmp_path):
    with pytest.raises(KeyError, match="no such column") as caught:
        horovod.run(train, (str(tmp_path / "died"), True), num_proc=2, min_num_proc=1)
    assert "no such column" in str(caught.value.__cause__) and "in loop" in str(caught.value.__cause__)


def test_a_discovery_script(tmp_path):
    script = f"echo localhost > {tmp_path}/asked; cat {tmp_path}/asked"
    results = horovod.run(train, (str(tmp_path), False), num_proc=2, host_discovery_script=script, slots=2)
    assert results == [(10, 0, 2), (10, 1, 2)]


@pytest.mark.parametrize("given, seconds", [({}, 2), ({"elastic_timeout": 1}, 1)])
def test_how_long_to_wait_for_hosts_is_a_keyword_too(given, seconds):
    with pytest.raises(RuntimeError, match=f"Timeout after {seconds} seconds"):
        horovod.run(
            os.getpid, num_proc=2, host_discovery_script="echo localhost:1",
            env=environment(HOROVOD_ELASTIC_TIMEOUT="2"), **given,
        )  # fmt: skip
    with pytest.raises(ValueError, match="elastic_timeout=-1 must be >= 0"):
        horovod.run(os.getpid, num_proc=2, min_num_proc=1, elastic_timeout=-1)


def test_output_files_are_the_workers_as_documented(tmp_path):
    def work():
        import horovod.numpy as hvd

        hvd.init()
        print("rank", hvd.rank())

    horovod.run(work, num_proc=2, min_num_proc=2, output_filename=str(tmp_path / "o"))
    folders = sorted(path for path in (tmp_path / "o").iterdir() if path.is_dir())
    assert [path.name for path in folders] == ["worker.0", "worker.1"]
    lines = sorted((path / "stdout").read_text() for path in folders)
    assert lines == [f"[{rank}]<stdout>:rank {rank}\n" for rank in range(2)]
    with open(os.path.join(ROOT, "docs", "running.md"), encoding="utf-8") as page:
        assert "`DIR/worker.N/stdout`" in page.read()


def killed_at_last():
    import signal
    import time

    import horovod.numpy as hvd

    hvd.init()
    if hvd.rank() == 1:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)


def alone(marker):
    """One of them returns at once, which ends the other: that is not in any world."""
    import time

    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        time.sleep(60)


def test_results_are_never_fewer_than_asked_for(tmp_path):
    with pytest.raises(RuntimeError, match="ended by SIGKILL"):
        horovod.run(killed_at_last, num_proc=2, min_num_proc=2)
    with pytest.raises(RuntimeError, match="only 1 of at least 2 ranks have finished"):
        horovod.run(alone, (str(tmp_path / "first"),), num_proc=2, min_num_proc=2)
