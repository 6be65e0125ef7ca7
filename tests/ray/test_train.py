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


@pytest.mark.parametrize("name", ["train_v2", "train_v1", "torch_trainer"])
def test_trainer(two_nodes, tmp_path, name):
    env = dict(os.environ, RAY_TRAIN_V2_ENABLED="0" if name == "train_v1" else "1", TMP=str(tmp_path))
    command = [sys.executable, os.path.join(HERE, "train_script.py"), name, two_nodes.address, str(tmp_path)]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    if name == "train_v2":  # rank 1 died once, and the new group went on from the checkpoint
        assert found["last"] == {"step": 3, "size": 2, "sum": 3.0}
        first, second = found["starts"]
        assert first == 0 and second in (0, 1, 2)  # a checkpoint is registered after it was reported
    elif name == "train_v1":
        assert found == {"size": 2, "sum": 3.0}
    else:
        assert found == {"size": 2, "sum": 3.0, "launcher": "torch.distributed"}


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
