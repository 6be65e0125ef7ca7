# SPDX-License-Identifier: Apache-2.0
"""Ray Client: the adapter of a driver outside of the cluster lives inside, where ranks reach its store."""

from __future__ import annotations

from typing import Any, Callable, Dict


class AdapterHost:
    """An adapter inside the cluster, for a driver outside of it: an actor without CPUs."""

    def __init__(self, params: Any, settings: Any, environment: Dict[str, str]) -> None:
        self._adapter = params.make_adapter(settings, environment)

    def ask(self, method: str, *args: Any) -> Any:
        """Calls a method of the adapter."""
        return getattr(self._adapter, method)(*args)


class RemoteAdapter:
    """What a driver outside of the cluster (Ray Client) sees of its adapter."""

    def __init__(self, params: Any, settings: Any, environment: Dict[str, str]) -> None:
        import ray

        self._host = ray.remote(num_cpus=0)(AdapterHost).remote(params, settings, environment)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def ask(*args: Any) -> Any:
            import ray

            try:
                return ray.get(self._host.ask.remote(method, *args))
            finally:
                if method == "shutdown":
                    ray.kill(self._host)

        return ask
