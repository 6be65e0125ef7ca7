# SPDX-License-Identifier: Apache-2.0
"""One Ray cluster of two nodes for all tests that do no harm to it."""

from __future__ import annotations

import pytest

pytest.importorskip("ray", reason="Ray is not installed here: it has an environment of its own")

from ray_here import alive_actors, cluster, held_groups  # noqa: E402


@pytest.fixture(scope="session")
def two_nodes():
    """Two nodes of four CPUs and two GPUs, which exist for Ray alone."""
    with cluster(4, 4, gpus=2) as made:
        yield made


@pytest.fixture
def ray_cluster(two_nodes):
    """The cluster; a test leaves no actor and no placement group behind."""
    yield two_nodes
    from waiting import until

    until(lambda: not alive_actors() and not held_groups(), "actors and placement groups are gone")
