# SPDX-License-Identifier: Apache-2.0
"""What a RayExecutor asks of the one who does the work: the workers of one job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, List, Optional, Sequence

Callbacks = Optional[Sequence[Callable[[Dict[str, Any]], None]]]


class Adapter(ABC):
    """Lives in the driver; with Ray Client, in an actor of the cluster."""

    @abstractmethod
    def start(
        self,
        executable_cls: Optional[type] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Dict[str, Any]] = None,
        extra_env_vars: Optional[Dict[str, str]] = None,
    ) -> None:
        """See RayExecutor.start."""

    @abstractmethod
    def run(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Dict[str, Any]] = None,
        queue: Any = None,
    ) -> List[Any]:
        """See RayExecutor.run; `queue` is for ray_logger."""

    @abstractmethod
    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Dict[str, Any]] = None,
    ) -> List[Any]:
        """See RayExecutor.run_remote."""

    @abstractmethod
    def execute(self, fn: Callable[[Any], Any], queue: Any = None) -> List[Any]:
        """See RayExecutor.execute."""

    @abstractmethod
    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """See RayExecutor.execute_single."""

    @abstractmethod
    def shutdown(self) -> None:
        """See RayExecutor.shutdown."""
