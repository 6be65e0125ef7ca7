# SPDX-License-Identifier: Apache-2.0
"""Drivers that end abruptly leave nothing; a driver outside of the cluster (Ray Client) works."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest
import ray
from ray_here import alive_actors, cluster, held_groups
from waiting import until

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "driver_script.py")


def driver(address, folder, how, **kwargs):
    return subprocess.Popen([sys.executable, SCRIPT, address, str(folder), how], text=True, **kwargs)


@pytest.mark.parametrize("how", ["static", "elastic"])
def test_a_killed_driver_leaves_nothing(two_nodes, tmp_path, how):
    process = driver(two_nodes.address, tmp_path, how)
    try:
        files = [tmp_path / "pid.0", tmp_path / "pid.1"]
        until(lambda: all(file.exists() for file in files) or process.poll() is not None, "both train", 120)
        assert process.poll() is None
        ranks = [int(file.read_text()) for file in files]
        listening = [one for one in psutil.Process(process.pid).net_connections() if one.status == "LISTEN"]
        assert listening  # the store's among them
    finally:
        process.kill()
        process.wait()
    until(lambda: not any(psutil.pid_exists(pid) for pid in ranks), "the ranks' processes are gone")
    until(lambda: not alive_actors() and not held_groups(), "actors and placement groups are gone")
    ports = {one.laddr.port for one in listening}
    left = [one for one in psutil.net_connections() if one.status == "LISTEN" and one.laddr.port in ports]
    assert not left


def test_ray_client(tmp_path):
    from ray._common.network_utils import find_free_port

    port = find_free_port()
    ray.shutdown()
    with cluster(3, ray_client_server_port=port):
        process = driver(f"ray://127.0.0.1:{port}", tmp_path, "client", stdout=subprocess.PIPE)
        said, _ = process.communicate(timeout=240)
        assert said.splitlines()[-3:] == ["sums [3.0, 3.0]", "raised True", "references True"], said
        until(lambda: not alive_actors() and not held_groups(), "actors and placement groups are gone")
