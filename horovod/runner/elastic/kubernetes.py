# SPDX-License-Identifier: Apache-2.0
"""Pods behind a headless service, found through DNS or through the list of the service's endpoints.

Both need pods that take ssh connections, as MPI jobs on Kubernetes do. A pod that is not ready is in neither.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import urllib.request
from typing import Any, Dict, Mapping

from horovod.runner.elastic.discovery import HostDiscovery

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


class HeadlessService(HostDiscovery):
    """The addresses that the name of a headless service stands for.

    Args:
        name: e.g. "workers" or "workers.training.svc.cluster.local".
        slots: of every pod.
    """

    def __init__(self, name: str, slots: int) -> None:
        self._name, self._slots = name, slots

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        try:
            found = socket.getaddrinfo(self._name, None, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
                return {}  # a service without ready pods has no address
            raise RuntimeError(f"cannot resolve the service {self._name}: {error}") from error
        return {str(info[4][0]): self._slots for info in sorted(found, key=lambda info: str(info[4][0]))}


class ServiceEndpoints(HostDiscovery):
    """The ready endpoints of a service, as the API server lists them.

    Runs inside a pod whose service account may read endpoints.

    Args:
        service, namespace: whose endpoints.
        slots: of every pod.
        server: of the API; default: the one this pod is told of.
        account: the folder with the token, the certificates and the namespace.
    """

    def __init__(
        self, service: str, slots: int, namespace: str = "", server: str = "", account: str = _ACCOUNT
    ) -> None:
        self._slots, self._account = slots, account
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
        if not server and not host:
            raise ValueError("KUBERNETES_SERVICE_HOST is not set: this is no pod, name the API server")
        space = namespace or self._read("namespace")
        address = server or f"https://{host}:{port or 443}"
        self._url = f"{address}/api/v1/namespaces/{space}/endpoints/{service}"

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        # The token is renewed in place now and then.
        asked = urllib.request.Request(self._url, headers={"Authorization": f"Bearer {self._read('token')}"})
        context = None
        if self._url.startswith("https:"):
            context = ssl.create_default_context(cafile=os.path.join(self._account, "ca.crt"))
        try:
            with urllib.request.urlopen(asked, timeout=30, context=context) as reply:
                return ready_addresses(json.load(reply), self._slots)
        except (OSError, ValueError) as error:
            raise RuntimeError(f"{self._url}: {error}") from error

    def _read(self, name: str) -> str:
        with open(os.path.join(self._account, name), encoding="utf-8") as file:
            return file.read().strip()


def ready_addresses(endpoints: Mapping[str, Any], slots: int) -> Dict[str, int]:
    """The ready addresses of an Endpoints object."""
    subsets = endpoints.get("subsets") or ()
    return {str(one["ip"]): slots for subset in subsets for one in subset.get("addresses") or ()}
