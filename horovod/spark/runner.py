# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run: a function on ranks that run in Spark tasks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence

from horovod.runner import results
from horovod.runner.results import pickled
from horovod.runner.run_function import results_of
from horovod.runner.settings import JobSettings
from horovod.spark.classic import ClassicTasks, driver_addresses
from horovod.spark.connect import run_with_connect
from horovod.spark.session import active_session, default_parallelism, is_connect
from horovod.spark.tasks_job import TasksJob

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer

START_TIMEOUT = "HOROVOD_SPARK_START_TIMEOUT"
_START_TIMEOUT_SECONDS = 600.0


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Dict[str, Any]] = None,
    num_proc: Optional[int] = None,
    start_timeout: Optional[float] = None,
    use_mpi: Optional[bool] = None,
    use_gloo: Optional[bool] = None,
    extra_mpi_args: Optional[str] = None,
    env: Optional[Dict[str, str]] = None,
    stdout: Optional[Any] = None,
    stderr: Optional[Any] = None,
    verbose: int = 1,
    nics: Optional[Sequence[str]] = None,
    prefix_output_with_timestamp: bool = False,
    executable: Optional[str] = None,
) -> List[Any]:
    """Calls fn(*args, **kwargs) on every rank of a job in Spark tasks; returns the results in rank order.

    Every rank is a process of its own, in a Spark task of its own. If fn raises on a rank, the exception is
    raised here, with the remote traceback as its cause, and the other ranks are ended. A rank that dies
    otherwise raises RuntimeError with its host, exit code and last lines.

    Args:
        fn: any function, closure or lambda (sent with cloudpickle). It calls hvd.init() itself.
        args: its arguments.
        kwargs: its keyword arguments.
        num_proc: number of ranks; by default Spark's default parallelism.
        start_timeout: seconds until all tasks must have started; HOROVOD_SPARK_START_TIMEOUT, or 600.
        use_mpi: not possible: there is no mpirun in Spark tasks, and nothing that needs one.
        use_gloo: accepted for compatibility.
        extra_mpi_args: accepted for compatibility.
        env: variables for the ranks, beside those of the executors.
        stdout: where the ranks' output goes; by default this process's.
        stderr: the same for standard error.
        verbose: 0: say nothing about the job itself; 2: say more.
        nics: network interfaces to use.
        prefix_output_with_timestamp: put the time in front of each line.
        executable: the Python of the ranks; by default that of the tasks.
    """
    if use_mpi:
        raise ValueError(
            "horovod.spark.run does not start ranks with mpirun. Leave use_mpi out: nothing here needs MPI"
        )
    session = active_session()
    settings = make_settings(num_proc or default_parallelism(), start_timeout, env, nics, verbose)
    settings.stdout, settings.stderr = stdout, stderr
    settings.prefix_output_with_timestamp = prefix_output_with_timestamp
    settings.command = [*([executable] if executable else []), "-m", "horovod.runner.run_task"]
    return run_in_tasks(session, settings, pickled(fn, args, kwargs))


def run_in_tasks(session: Any, settings: JobSettings, call: bytes) -> List[Any]:
    """Runs a pickled call on ranks in tasks of a session."""
    if is_connect(session):
        return run_with_connect(session, settings, call)
    return results_of(_job(session, settings, lambda store: results.publish(store, call)))


def command_in_tasks(session: Any, settings: JobSettings) -> None:
    """Runs the settings' command as ranks in tasks of a session."""
    if is_connect(session):
        run_with_connect(session, settings, None)
    else:
        _job(session, settings, lambda store: None).run()


def _job(session: Any, settings: JobSettings, prepare: Callable[[StoreServer], None]) -> TasksJob:
    context = session.sparkContext
    tasks = ClassicTasks(context, settings.num_proc)
    addresses = driver_addresses(lambda name: context.getConf().get(name), settings.nics)
    return TasksJob(settings, addresses, tasks.start, tasks.end, prepare)


def make_settings(
    num_proc: int,
    start_timeout: Optional[float],
    env: Optional[Dict[str, str]],
    nics: Optional[Sequence[str]],
    verbose: int,
) -> JobSettings:
    """The settings of a job in Spark tasks."""
    if num_proc < 1:
        raise ValueError(f"horovod.spark.run(num_proc={num_proc!r}): there must be at least one rank")
    limit = start_timeout or float(os.environ.get(START_TIMEOUT) or _START_TIMEOUT_SECONDS)
    return JobSettings(
        command=[],
        num_proc=num_proc,
        hosts=[],
        env={name: str(value) for name, value in (env or {}).items()},
        start_timeout=float(limit),
        nics=list(nics) if nics else None,
        verbose=verbose - 1,  # what horovodrun says without -v is said for 1
    )
