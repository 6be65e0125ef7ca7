# SPDX-License-Identifier: Apache-2.0
"""One Ray cluster of two nodes for all tests that do no harm to it."""

from __future__ import annotations

import pytest

pytest.importorskip("ray", reason="Ray is not installed here: it has an environment of its own")

from ray_here import alive_actors, cluster, held_groups  # noqa: E402
from waiting import until  # noqa: E402


@pytest.fixture(scope="session")
def running():
    """Two nodes of three CPUs and two GPUs, which exist for Ray alone; nobody is connected."""
    with cluster(3, 3, gpus=2, connect=False) as made:
        yield made


@pytest.fixture
def two_nodes(running):
    """The same, with this process connected: tests that need a cluster of their own connect elsewhere."""
    import ray

    if not ray.is_initialized():
        ray.init(address=running.address, log_to_driver=False)
    return running


@pytest.fixture
def ray_cluster(two_nodes):
    """The same; a test leaves no actor and no placement group behind."""
    yield two_nodes
    until(lambda: not alive_actors() and not held_groups(), "actors and placement groups are gone")
