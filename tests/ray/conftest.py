# SPDX-License-Identifier: Apache-2.0
"""One Ray cluster of two nodes for all tests: to start one takes longer than most of them."""

from __future__ import annotations

import pytest

pytest.importorskip("ray", reason="Ray is not installed here: it has an environment of its own")

from ports import free_ports  # noqa: E402
from ray_here import CPUS, cluster, nothing_left  # noqa: E402


@pytest.fixture(scope="session")
def two_nodes():
    """Two nodes of four CPUs and two GPUs, which exist for Ray alone, and a port for Ray Client."""
    (port,) = free_ports(1)
    with cluster(CPUS, CPUS, gpus=2, ray_client_server_port=port) as made:
        made.client_port = port
        yield made


@pytest.fixture
def ray_cluster(two_nodes):
    """The same; a test leaves no actor and no placement group behind."""
    with nothing_left():
        yield two_nodes
