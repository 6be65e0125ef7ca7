# SPDX-License-Identifier: Apache-2.0
"""How an estimator starts its ranks."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional, Sequence


class Backend:
    """Runs a function on every rank of a job."""

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[Dict[str, Any]] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> List[Any]:
        """Calls fn(*args, **kwargs) on every rank; results in rank order."""
        raise NotImplementedError

    def num_processes(self) -> int:
        """The number of ranks."""
        raise NotImplementedError


class SparkBackend(Backend):
    """Ranks in Spark tasks, through horovod.spark.run.

    Args:
        num_proc: number of ranks; by default Spark's default parallelism.
        env: variables for them.
        kwargs: for horovod.spark.run, e.g. start_timeout, stdout, verbose.
    """

    def __init__(
        self, num_proc: Optional[int] = None, env: Optional[Dict[str, str]] = None, **kwargs: Any
    ) -> None:
        self._num_proc = num_proc or default_num_proc()
        self._env = env
        self._kwargs = kwargs

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[Dict[str, Any]] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> List[Any]:
        import horovod.spark

        variables = {**(self._env or {}), **(env or {})}
        # Which GPU a rank uses is decided where it runs.
        variables.pop("CUDA_VISIBLE_DEVICES", None)
        results: List[Any] = horovod.spark.run(
            fn, args, kwargs or {}, num_proc=self._num_proc, env=variables, **self._kwargs
        )
        return results

    def num_processes(self) -> int:
        return self._num_proc


class LocalBackend(Backend):
    """Ranks on the driver's machine, through horovod.run: for small data and tests.

    Args:
        num_proc: number of ranks.
        env: variables for them, beside those of this process.
    """

    def __init__(self, num_proc: int = 1, env: Optional[Dict[str, str]] = None) -> None:
        self._num_proc = num_proc
        self._env = env

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[Dict[str, Any]] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> List[Any]:
        import horovod

        variables = {**os.environ, **(self._env or {}), **(env or {})}
        return horovod.run(fn, args, kwargs, num_proc=self._num_proc, env=variables)

    def num_processes(self) -> int:
        return self._num_proc


def default_num_proc() -> int:
    """Spark's default parallelism."""
    from horovod.spark.session import default_parallelism

    return default_parallelism()
