# SPDX-License-Identifier: Apache-2.0
"""Distributor: a function or a script on several ranks, in the manner of Spark's TorchDistributor.

Distributor(num_processes=4, local_mode=False).run(train, 1e-3)
Distributor(num_processes=2).run("train.py", "--learning-rate=1e-3")
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, List, Optional, Union

from horovod.runner.results import pickled
from horovod.runner.settings import JobSettings
from horovod.spark.runner import command_in_tasks, make_settings, run_in_tasks
from horovod.spark.session import active_session

__all__ = ["Distributor"]


class Distributor:
    """Runs a function or a script, of any framework, on several ranks.

    Args:
        num_processes: number of ranks.
        local_mode: on the driver's machine; otherwise in Spark tasks.
        use_gpu: give each rank a GPU: that of its task, or in local mode one by its rank. Without, ranks see
            no GPUs.
        start_timeout: seconds until all ranks must have started.
        env: variables for the ranks.
    """

    def __init__(
        self,
        num_processes: int = 1,
        local_mode: bool = True,
        use_gpu: bool = True,
        start_timeout: Optional[float] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> None:
        if num_processes < 1:
            raise ValueError("num_processes has to be a positive integer")
        self.num_processes = num_processes
        self.local_mode = local_mode
        self.use_gpu = use_gpu
        self._start_timeout = start_timeout
        self._env = dict(env or {})

    def run(self, train_object: Union[Callable[..., Any], str], *args: Any, **kwargs: Any) -> List[Any]:
        """Calls a function with the arguments on every rank, or runs a script with them on its command line.

        Returns:
            What the function returned, in rank order; an empty list for a script.
        """
        if isinstance(train_object, str):
            if kwargs:
                raise ValueError("a script takes no keyword arguments")
            self._run_script(train_object, [str(word) for word in args])
            return []
        call = pickled(_on_device, (self.use_gpu, train_object, args, kwargs), {})
        settings = self._settings()
        settings.command = ["-m", "horovod.runner.run_task"]
        if not self.local_mode:
            return run_in_tasks(active_session(), settings, call)
        from horovod.runner.run_function import run_job

        return run_job(self._local(settings), call)

    def _run_script(self, path: str, words: List[str]) -> None:
        settings = self._settings()
        settings.command = ["-m", "horovod.spark.script_task", str(int(self.use_gpu)), path, *words]
        if not self.local_mode:
            command_in_tasks(active_session(), settings)
            return
        from horovod.runner.job import Job

        Job(self._local(settings)).run()

    def _settings(self) -> JobSettings:
        return make_settings(self.num_processes, self._start_timeout, self._env, None, 1)

    def _local(self, settings: JobSettings) -> JobSettings:
        from horovod.runner.hosts import HostInfo
        from horovod.runner.run_function import importable

        settings.hosts = [HostInfo("localhost", self.num_processes)]
        settings.env = importable({**os.environ, **self._env})
        settings.command = [sys.executable, *settings.command]
        return settings


def _on_device(use_gpu: bool, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    from horovod.spark.common.gpu import show_gpu

    show_gpu(use_gpu)
    return function(*args, **kwargs)
