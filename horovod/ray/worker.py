# SPDX-License-Identifier: Apache-2.0
"""A rank on Ray: what an actor of ours can be asked to do."""

from __future__ import annotations

import os
import socket
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence


class WorkerFacts(NamedTuple):
    """What a worker says about itself once it runs."""

    hostname: str
    node_id: str
    gpu_ids: Sequence[str] = ()


class BaseHorovodWorker:
    """One rank. The user's functions run in this process, so what they keep in it stays from call to call.

    Args:
        world_rank, world_size: who it is, if that is known already.
    """

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        os.environ["HOROVOD_RANK"] = str(world_rank)
        os.environ["HOROVOD_SIZE"] = str(world_size)
        self.executable: Any = None
        self._raised: Optional[BaseException] = None

    def node_id(self) -> str:
        """The Ray node it runs on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def hostname(self) -> str:
        """Its machine's name."""
        return socket.gethostname()

    def get_gpu_ids(self) -> List[str]:
        """The GPUs that Ray has given it."""
        import ray

        return [str(one) for one in ray.get_gpu_ids()]

    def facts(self) -> WorkerFacts:
        """All of the above at once."""
        return WorkerFacts(self.hostname(), self.node_id(), self.get_gpu_ids())

    def update_env_vars(self, env_vars: Dict[str, Any]) -> None:
        """Sets variables of its environment; names and values are made texts."""
        os.environ.update({str(name): str(value) for name, value in env_vars.items()})

    def env_vars(self) -> Dict[str, str]:
        """Its environment."""
        return dict(os.environ)

    def start_executable(
        self,
        executable_cls: Optional[Callable[..., Any]] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Dict[str, Any]] = None,
    ) -> None:
        """Makes the object that `execute` passes to functions."""
        if executable_cls is not None:
            self.executable = self._noting(
                executable_cls, *(executable_args or ()), **(executable_kwargs or {})
            )

    def execute(self, func: Callable[[Any], Any]) -> Any:
        """func(executable)."""
        return self._noting(func, self.executable)

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
        """func(*args, **kwargs)."""
        return self._noting(func, *args, **kwargs)

    def set_queue(self, queue: Any) -> None:
        """Where ray_logger.log leaves what the user's code logs."""
        from horovod.ray import ray_logger

        ray_logger.configure(queue)

    def leave(self) -> None:
        """Leaves its world, if it is in one; the others hear what the last function raised here, if so."""
        from horovod.common.basics import basics

        try:
            if self._raised is not None:
                raise self._raised
        except BaseException:
            basics.shutdown()  # tells the others of the exception that is on its way
        else:
            basics.shutdown()

    def _noting(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._raised = None
        try:
            return func(*args, **kwargs)
        except SystemExit as end:  # Ray would end the actor, whatever the status
            if end.code in (None, 0):
                return None
            self._raised = RuntimeError(f"the function called sys.exit({end.code!r})")
            raise self._raised from end
        except BaseException as error:
            self._raised = error
            raise
