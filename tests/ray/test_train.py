# SPDX-License-Identifier: Apache-2.0
"""Ray Train: our backend (v2), the names that its own earlier HorovodTrainer imports, and TorchTrainer.

Each in a process of its own: Ray Train decides at import which of its versions it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from world import ROOT

from horovod.ray.coordinator import Coordinator

HERE = os.path.dirname(os.path.abspath(__file__))


EXPECTED = {
    # Rank 1 died before step 2, and the new group went on from the checkpoint of step 1.
    "train_v2": {"starts": [0, 2], "last": {"step": 3, "size": 2, "sum": 3.0}},
    "train_v1": {"size": 2, "sum": 3.0},
    "torch_trainer": {"size": 2, "sum": 3.0, "launcher": "torch.distributed"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_trainer(ray_cluster, tmp_path, name):
    env = dict(
        os.environ,
        RAY_TRAIN_V2_ENABLED="0" if name == "train_v1" else "1",
        RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S="240",  # a busy machine is no failure
        TMP=str(tmp_path),
    )
    script = os.path.join(HERE, "train_script.py")
    command = [sys.executable, script, name, ray_cluster.address, str(tmp_path)]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == EXPECTED[name]


def test_coordinator():
    """What Ray Train's own backend asks of it."""
    import ray

    coordinator = Coordinator(None)
    nodes = ["b" * 56, "a" * 56, "b" * 56]
    for rank, node in enumerate(nodes):
        coordinator.register("machine", node, rank)
    assert coordinator.world_size == 3 and coordinator.hostnames == set(nodes)
    assert coordinator.node_id_string == f"{nodes[0]}:2,{nodes[1]}:1"
    assert not ray.is_initialized() or ray.util.get_node_ip_address()
    try:
        found, where = coordinator.finalize_registration(), coordinator.establish_rendezvous()
        assert [found[rank]["HOROVOD_LOCAL_RANK"] for rank in range(3)] == ["0", "0", "1"]
        assert [found[rank]["HOROVOD_HOST_KEY"] for rank in range(3)] == nodes
        assert all(found[rank]["HOROVOD_HOSTNAME"] == "machine" for rank in range(3))
        assert where.items() <= found[0].items()
    finally:
        coordinator.close()
