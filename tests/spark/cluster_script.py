# SPDX-License-Identifier: Apache-2.0
"""Run by test_cluster.py: jobs on a cluster of two executors that Spark allocates when they are needed.

Prints a line of JSON for each job.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time

from elastic_training import train
from spark_here import session

import horovod.spark

GPUS = """#!/bin/sh
echo '{"name": "gpu", "addresses": ["3"]}'
"""


def say(**facts):
    print(json.dumps(facts), flush=True)


def place():
    import horovod.numpy as hvd
    from horovod.spark.task import get_available_devices

    hvd.init()
    return hvd.rank(), hvd.local_size(), get_available_devices(), os.environ["HOROVOD_HOSTNAME"]


def lose_executor(folder):
    import horovod.numpy as hvd

    hvd.init()
    if hvd.rank() == 1:
        kill_executor()
    hvd.barrier()


def kill_executor(mark=None):
    if mark is not None:
        open(mark, "w").close()
    os.kill(executor(), signal.SIGKILL)
    time.sleep(600)  # it takes this process along


def executor():
    """The JVM above this process."""
    import psutil

    return next(one.pid for one in psutil.Process().parents() if "java" in one.name())


def main(folder):
    script = os.path.join(folder, "gpus.sh")
    with open(script, "w") as file:
        file.write(GPUS)
    os.chmod(script, 0o755)
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.initialExecutors": "1",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.worker.resource.gpu.amount": "1",
        "spark.worker.resource.gpu.discoveryScript": script,
        "spark.executor.resource.gpu.amount": "1",
        "spark.task.resource.gpu.amount": "1",
    }
    with session("local-cluster[2,1,1024]", conf):
        say(job="place", result=horovod.spark.run(place, num_proc=2, start_timeout=240))
        try:
            horovod.spark.run(lose_executor, (folder,), num_proc=2, start_timeout=240)
        except RuntimeError as error:
            say(job="lost", error=str(error))
        elastic = dict(num_proc=2, min_num_proc=1, start_timeout=240)
        mark = os.path.join(folder, "lost")  # however long the survivor takes, it is alone for a while
        given = (2, functools.partial(kill_executor, mark), False, 2, mark)
        say(job="elastic", result=horovod.spark.run_elastic(train, given, **elastic))
        say(job="again", result=horovod.spark.run(place, num_proc=2, start_timeout=240))


if __name__ == "__main__":
    main(sys.argv[1])
