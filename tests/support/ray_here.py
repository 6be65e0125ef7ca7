# SPDX-License-Identifier: Apache-2.0
"""Ray clusters of several nodes on this machine, small and by themselves."""

from __future__ import annotations

import contextlib
import os
import time
from unittest import mock

from waiting import until
from world import ROOT, SUPPORT

# Before Ray is imported: no token in the home folder, no usage report, killed nodes noticed in seconds.
SETTINGS = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "240",  # by default 30
    # The proxy of Ray Client forks the server of each client. What gRPC does in a forked child ends one in
    # fifteen before they become that server (ray-project/ray#63202).
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    "RAY_worker_register_timeout_seconds": "240",  # by default 60
    "RAY_worker_niceness": "0",  # by default 15: beside other tests, ranks would hardly get anywhere
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "10000",  # a killed node refuses at once; a busy one answers late
    "RAY_health_check_failure_threshold": "4",
}
CPUS = 4  # of each node of the tests' cluster
# The head starts nothing that no test needs: each is a process that imports Ray.
HEAD = {
    "object_store_memory": 10**8,
    "include_dashboard": False,
    "include_log_monitor": False,
    "no_monitor": True,
}


def prepare():
    """The environment of everything that Ray starts from here."""
    os.environ.update(SETTINGS, PYTHONPATH=os.pathsep.join([ROOT, SUPPORT]))


@contextlib.contextmanager
def cluster(*cpus, connect=True, gpus=0, **head):
    """A cluster with a node for each number of CPUs; the first is the head."""
    prepare()
    import ray
    from ray._private import services
    from ray.cluster_utils import Cluster

    class Patient(Cluster):
        """Allows a busy machine more than the 30 s in which Ray wants a node to be there and to be known."""

        def add_node(self, *args, **kwargs):
            with mock.patch.object(services, "get_node", _patiently(services.get_node)):
                return super().add_node(*args, **kwargs)

        def _wait_for_node(self, node, timeout=240):
            super()._wait_for_node(node, timeout)

    made = Patient(
        initialize_head=True, head_node_args={**HEAD, "num_cpus": cpus[0], "num_gpus": gpus, **head}
    )
    try:
        for count in cpus[1:]:
            made.add_node(num_cpus=count, num_gpus=gpus, object_store_memory=10**8)
        if connect:
            ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def _patiently(call, seconds=240):
    """The same call, again and again while it raises a RuntimeError."""

    def again(*args):
        deadline = time.monotonic() + seconds
        while True:
            try:
                return call(*args)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    return again


@contextlib.contextmanager
def nothing_left():
    """What the block has made in the cluster is gone soon after it."""
    before = {*_of_actors(), *_of_groups()}
    yield
    until(
        lambda: not {*_of_actors(), *_of_groups()} - before,
        "actors and placement groups are gone",
        timeout=120,
    )


def free(cpus):
    """Waits until Ray says that so many CPUs are free: of those that are given back it hears later."""
    import ray

    until(lambda: ray.available_resources().get("CPU", 0.0) == cpus, f"{cpus} CPUs are free", 120)


def _of_actors():
    return [one["ActorID"] for one in alive_actors()]


def _of_groups():
    return [one["placement_group_id"] for one in held_groups()]


OURS = (
    "BaseHorovodWorker",
    "AdapterHost",
    "ElasticWorker",
)  # Ray Train and Ray Data keep actors of their own


def alive_actors():
    """The actors of ours that Ray believes to be alive or about to start."""
    from ray._private.state import actors

    return [one for one in actors().values() if one["State"] != "DEAD" and one["ActorClassName"] in OURS]


def held_groups():
    """The placement groups that nobody has given back."""
    from ray.util import placement_group_table

    return [one for one in placement_group_table().values() if one["state"] != "REMOVED"]
