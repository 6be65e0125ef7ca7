# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run on a local session: results, output, failures, limits, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from spark_output import Heard, gone
from world import ROOT, worker_env

import horovod.spark
from horovod.runner.common.util.timeout import TimeoutException


def when(event, act):
    """Does something on another thread when the event is set."""
    threading.Thread(target=lambda: event.wait(300) and act(), daemon=True).start()


def total(factor=1.0, fail_on=None, how=None):
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    print(f"pid {os.getpid()}", flush=True)
    if hvd.rank() == fail_on:
        how()
    sums = hvd.allreduce(np.full(4, factor * (hvd.rank() + 1)), op=hvd.Sum)
    return hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), sums.tolist()


def wait_for_ever():
    import horovod.numpy as hvd

    hvd.init()
    print(f"pid {os.getpid()}", flush=True)
    hvd.barrier()
    print("started", flush=True)  # when both have said it, neither waits for the other any more
    time.sleep(600)


def raise_something():
    raise ValueError("no luck today")


def kill_myself():
    os.kill(os.getpid(), signal.SIGKILL)


def test_results_in_rank_order_and_output(spark):
    out = Heard()
    expected = [(rank, 2, rank, 2, [6.0] * 4) for rank in range(2)]
    assert horovod.spark.run(total, (2.0,), num_proc=2, stdout=out, env={"A": "b"}) == expected
    assert horovod.spark.run(total, kwargs={"factor": 2.0}, stdout=out) == expected  # the default parallelism
    lines = out.getvalue().splitlines()
    assert sorted(line[:16] for line in lines) == ["[0]<stdout>:pid "] * 2 + ["[1]<stdout>:pid "] * 2
    assert gone(out.numbers("pid"))


def complain():
    print("a word of warning", file=sys.stderr, flush=True)
    return os.environ["HOROVOD_GLOO_IFACE"]


def test_standard_error_with_the_time_and_an_interface(spark):
    errors = Heard()
    options = dict(num_proc=1, stderr=errors, verbose=0, prefix_output_with_timestamp=True, nics=["lo"])
    assert horovod.spark.run(complain, **options) == ["lo"]
    assert re.fullmatch(
        r"\w+ \w+ +\d+ \d\d:\d\d:\d\d \d{4}\[0\]<stderr>:a word of warning\n", errors.getvalue()
    )


def test_an_exception_comes_back_and_the_next_job_works(spark):
    out = Heard()
    with pytest.raises(ValueError, match="no luck today") as caught:
        horovod.spark.run(total, (1.0, 1, raise_something), num_proc=2, stdout=out)
    cause = str(caught.value.__cause__)
    assert "rank 1 on host" in cause and "Spark task" in cause and "in raise_something" in cause
    assert gone(out.numbers("pid"))
    assert len(horovod.spark.run(total, num_proc=2, stdout=Heard())) == 2


def test_a_rank_that_dies(spark):
    out = Heard()
    with pytest.raises(RuntimeError, match="Process name: 1\nExit code: 137") as caught:
        horovod.spark.run(total, (1.0, 1, kill_myself), num_proc=2, stdout=out, stderr=Heard())
    assert "(Spark task" in str(caught.value) and gone(out.numbers("pid"))


def test_too_few_slots(spark, monkeypatch):
    monkeypatch.setenv("HOROVOD_SPARK_START_TIMEOUT", "3")
    with pytest.raises(
        TimeoutException, match=r"[012] of 3 Spark tasks have started: .* after 3 seconds"
    ) as caught:
        horovod.spark.run(total, num_proc=3)
    assert "Please check that you have enough resources to run all Horovod processes" in str(caught.value)
    result = horovod.spark.run(total, num_proc=2, stdout=Heard(), start_timeout=240)
    assert len(result) == 2, "the slots are free again"


def test_two_jobs_at_once(spark):
    results = {}

    def job(name):
        results[name] = horovod.spark.run(total, (float(name),), num_proc=1, stdout=Heard())

    threads = [threading.Thread(target=job, args=(name,)) for name in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert results == {name: [(0, 1, 0, 1, [float(name)] * 4)] for name in (1, 2)}


def test_interrupted_from_the_keyboard(spark):
    out = Heard("started", 2)
    when(out.event, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        horovod.spark.run(wait_for_ever, num_proc=2, stdout=out)
    assert len(out.numbers("pid")) == 2 and gone(out.numbers("pid"))


def test_cancelled_by_spark(spark):
    out = Heard("started", 2)
    when(out.event, spark.sparkContext.cancelAllJobs)
    with pytest.raises(RuntimeError, match="Lost host .*Spark task"):
        horovod.spark.run(wait_for_ever, num_proc=2, stdout=out)
    assert gone(out.numbers("pid"))


def surroundings():
    import importlib

    import horovod.spark.task as task

    with open("added.txt") as file:
        text = file.read()
    module = importlib.import_module("added_module")
    return {
        "text": text,
        "module": module.VALUE,
        "devices": task.get_available_devices(),
        "folder": os.environ["HOROVOD_SPARK_WORK_DIR"] == os.getcwd(),
        "A": os.environ.get("A"),
        "home": os.environ.get("HOME") is not None,
    }


def test_surroundings_of_a_rank(spark, tmp_path):
    (tmp_path / "added.txt").write_text("from the driver")
    (tmp_path / "added_module.py").write_text("VALUE = 7\n")
    spark.sparkContext.addFile(str(tmp_path / "added.txt"))
    spark.sparkContext.addPyFile(str(tmp_path / "added_module.py"))
    (found,) = horovod.spark.run(surroundings, num_proc=1, env={"A": "b"})
    assert found == {
        "text": "from the driver", "module": 7, "devices": [], "folder": True, "A": "b", "home": True
    }  # fmt: skip


def test_another_python(spark, tmp_path):
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nTHROUGH_SCRIPT=1 exec {os.environ["PYSPARK_PYTHON"]} "$@"\n')
    script.chmod(0o755)
    found = horovod.spark.run(lambda: os.environ["THROUGH_SCRIPT"], num_proc=1, executable=str(script))
    assert found == ["1"]


def test_a_python_without_horovod(spark, tmp_path, monkeypatch):
    """As if PYSPARK_PYTHON named one: it does not find this tree."""
    script = tmp_path / "python"
    script.write_text(
        "#!/bin/sh\ncd /\n"
        f"PYTHONPATH=$(echo $PYTHONPATH | tr : '\\n' | grep -v '^{ROOT}' | paste -sd:)\n"
        f'export PYTHONPATH\nexec {sys.executable} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(script))
    with pytest.raises(RuntimeError, match="has no horovod. Install it there, or set PYSPARK_PYTHON"):
        horovod.spark.run(total, num_proc=2, start_timeout=240)


@pytest.mark.parametrize(
    ("what", "value", "message"),
    [
        ("pythonExec", "/nowhere/python", "cannot start their Python. Set PYSPARK_PYTHON"),
        ("pythonVer", "3.1", "run another version of Python than this process. Set PYSPARK_PYTHON"),
    ],
)
def test_other_mistakes_with_pythons(spark, monkeypatch, what, value, message):
    monkeypatch.setattr(spark.sparkContext, what, value)
    with pytest.raises(RuntimeError, match=message):
        horovod.spark.run(total, num_proc=1, start_timeout=240)


def test_what_is_refused(spark):
    with pytest.raises(ValueError, match="Leave use_mpi out"):
        horovod.spark.run(total, use_mpi=True)
    with pytest.raises(ValueError, match="there must be at least one rank"):
        horovod.spark.run(total, num_proc=-1)
    with pytest.raises(ValueError, match="cannot send the function to the workers"):
        horovod.spark.run(total, (threading.Lock(),), num_proc=1)


def test_no_session():
    code = "import horovod.spark; horovod.spark.run(print)"
    done = subprocess.run([sys.executable, "-c", code], env=worker_env(), capture_output=True, text=True)
    text = "Exception: Could not find an active SparkContext, are you running in a PySpark session?"
    assert done.returncode == 1 and text in done.stderr


def test_the_tree_that_is_tested(spark):
    assert horovod.spark.run(lambda: horovod.spark.__file__, num_proc=1)[0].startswith(ROOT)
