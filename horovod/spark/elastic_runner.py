# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run_elastic: a function on ranks in Spark tasks that may come and go."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence

from horovod.common import config
from horovod.runner import results
from horovod.runner.elastic.limits import Limits
from horovod.runner.run_function import results_of
from horovod.spark.classic import ClassicTasks, driver_addresses
from horovod.spark.elastic_tasks_job import ElasticTasksJob
from horovod.spark.runner import make_settings
from horovod.spark.session import active_session, default_parallelism, is_connect


def run_elastic(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Dict[str, Any]] = None,
    num_proc: Optional[int] = None,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    start_timeout: Optional[float] = None,
    elastic_timeout: Optional[float] = None,
    reset_limit: Optional[int] = None,
    env: Optional[Dict[str, str]] = None,
    stdout: Optional[Any] = None,
    stderr: Optional[Any] = None,
    verbose: int = 1,
    nics: Optional[Sequence[str]] = None,
    prefix_output_with_timestamp: bool = False,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
) -> List[Any]:
    """Calls fn(*args, **kwargs) on ranks in Spark tasks; when some are lost, the others go on.

    When an executor dies or is taken away, the remaining ranks go on from their last commit, and ranks join
    them as soon as Spark has started the lost tasks again. See horovod.spark.conf for how often it does.

    Args:
        fn: trains inside a function decorated with hvd.elastic.run; it is sent with cloudpickle.
        args: its arguments.
        kwargs: its keyword arguments.
        num_proc: ranks to start with; by default Spark's default parallelism.
        min_num_proc: fewest ranks to go on with; num_proc by default.
        max_num_proc: most ranks, hence the number of Spark tasks; num_proc by default.
        start_timeout: seconds until num_proc tasks must have started; HOROVOD_SPARK_START_TIMEOUT, or 600.
        elastic_timeout: seconds to wait for min_num_proc ranks after a loss; HOROVOD_ELASTIC_TIMEOUT, or 600.
        reset_limit: how often the ranks may form anew, newcomers aside; any number by default.
        env: variables for the ranks, beside those of the executors.
        stdout: where the ranks' output goes; by default this process's.
        stderr: the same for standard error.
        verbose: 0: say nothing about the job itself; 2: say more.
        nics: network interfaces to use.
        prefix_output_with_timestamp: put the time in front of each line.
        min_np: the earlier name of min_num_proc.
        max_np: the earlier name of max_num_proc.

    Returns:
        What fn returned on the ranks of the last world, in rank order.
    """
    session = active_session()
    if is_connect(session):
        raise RuntimeError(
            "horovod.spark.run_elastic needs a classic Spark session: through Spark Connect ranks run in "
            "barrier tasks, all of which Spark starts again when one is lost. Use horovod.spark.run there"
        )
    limits = _limits(
        num_proc or default_parallelism(),
        _renamed("min_np", min_np, "min_num_proc", min_num_proc),
        _renamed("max_np", max_np, "max_num_proc", max_num_proc),
        elastic_timeout,
        reset_limit,
    )
    most = limits.max_np or limits.num_proc
    settings = make_settings(most, start_timeout, env, nics, verbose)
    settings.stdout, settings.stderr = stdout, stderr
    settings.prefix_output_with_timestamp = prefix_output_with_timestamp
    settings.command = ["-m", "horovod.runner.run_task"]
    call = results.pickled(fn, args, kwargs)
    context = session.sparkContext
    job = ElasticTasksJob(
        settings,
        limits,
        ClassicTasks(context, most),
        driver_addresses(lambda name: context.getConf().get(name), settings.nics),
        lambda store: results.publish(store, call),
    )
    return results_of(job)


def _limits(
    num_proc: int,
    min_num_proc: Optional[int],
    max_num_proc: Optional[int],
    elastic_timeout: Optional[float],
    reset_limit: Optional[int],
) -> Limits:
    fewest = num_proc if min_num_proc is None else min_num_proc
    most = num_proc if max_num_proc is None else max_num_proc
    if not 1 <= fewest <= num_proc <= most:
        raise ValueError(
            f"horovod.spark.run_elastic(num_proc={num_proc}, min_num_proc={fewest}, max_num_proc={most}): "
            "there must be at least one rank, no fewer than min_num_proc and no more than max_num_proc"
        )
    return Limits(
        num_proc=num_proc,
        min_np=fewest,
        max_np=most,
        elastic_timeout=float(elastic_timeout or config.get("elastic_timeout")),
        reset_limit=reset_limit,
    )


def _renamed(old: str, old_value: Optional[int], new: str, new_value: Optional[int]) -> Optional[int]:
    if old_value is None:
        return new_value
    warnings.warn(f"{old} is deprecated, use {new} instead", DeprecationWarning, stacklevel=3)
    return old_value
