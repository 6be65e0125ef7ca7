# SPDX-License-Identifier: Apache-2.0
"""What runs in a Spark task: it calls the launcher and runs a rank for it, as a process of its own."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterator, List, Sequence, Tuple

# How long one of the launcher's addresses is tried before the next.
_TRY_SECONDS = 5.0


@dataclass(frozen=True)
class Launcher:
    """Where the launcher waits for tasks. Spark carries it to them, with the job's secret."""

    addresses: Tuple[str, ...]
    port: int
    secret: bytes


def be_a_host(launcher: Launcher, number: int, context: Any) -> None:
    """Runs what the launcher asks for until it hangs up; no process outlives this call.

    Args:
        number: of the task.
        context: Spark's TaskContext.
    """
    from horovod.rendezvous.network import machine_key
    from horovod.runner.agent_socket import serve
    from horovod.spark.placing import TaskFacts

    problems: List[str] = []
    with _working_folder() as folder, _importable():
        for address in launcher.addresses:
            facts = TaskFacts(
                task=number,
                attempt=context.attemptNumber(),
                host=socket.gethostname(),
                machine=machine_key(),
                address=address,
                python=sys.executable,
                folder=folder,
                devices=_devices(context),
            )
            try:
                serve(address, launcher.port, launcher.secret, tag=facts.to_tag(), timeout=_TRY_SECONDS)
                return
            except OSError as error:
                problems.append(f"{address}:{launcher.port}: {error}")
    raise ConnectionError(
        f"{socket.gethostname()} cannot reach the launcher of the Horovod job ({'; '.join(problems)}). "
        "Spark's tasks must be able to connect to any port of it: check firewalls and spark.driver.host"
    )


def _devices(context: Any) -> Tuple[str, ...]:
    gpu = context.resources().get("gpu")
    return tuple(gpu.addresses) if gpu is not None else ()


@contextmanager
def _working_folder() -> Iterator[str]:
    """A folder of the task's own with links to the files that were added to the SparkContext."""
    # Spark deletes its local folders in the end, also after a kill -9 of the task.
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    folder = tempfile.mkdtemp(prefix="horovod-task-", dir=local if os.path.isdir(local) else None)
    try:
        for path in _spark_files():
            os.symlink(path, os.path.join(folder, os.path.basename(path)))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _spark_files() -> Sequence[str]:
    from pyspark import SparkFiles

    root = SparkFiles._root_directory  # type: ignore[attr-defined]
    if not root or not os.path.isdir(root):
        return []
    return [os.path.join(root, name) for name in sorted(os.listdir(root))]


@contextmanager
def _importable() -> Iterator[None]:
    """Lets the rank import what the task can: Spark has put the files of addPyFile on its path."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
