# SPDX-License-Identifier: Apache-2.0
"""Drivers that end abruptly leave nothing; a driver outside of the cluster (Ray Client) works."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
from ray_here import nothing_left
from waiting import until

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "driver_script.py")


def driver(address, folder, how, **kwargs):
    return subprocess.Popen([sys.executable, SCRIPT, address, str(folder), how], text=True, **kwargs)


def test_killed_drivers_leave_nothing(two_nodes, tmp_path):
    """One of a static and one of an elastic job, at the same time."""
    folders = [tmp_path / how for how in ("static", "elastic")]
    files = [folder / f"pid.{rank}" for folder in folders for rank in (0, 1)]
    with nothing_left():
        drivers = []
        try:
            for folder in folders:
                folder.mkdir()
                drivers.append(driver(two_nodes.address, folder, folder.name))
            until(
                lambda: (
                    all(file.exists() for file in files) or any(one.poll() is not None for one in drivers)
                ),
                "all ranks train",
                240,
            )
            assert [one.poll() for one in drivers] == [None, None]
            processes = [psutil.Process(int(file.read_text())) for file in files]
            for one in drivers:
                processes += psutil.Process(one.pid).children(recursive=True)
        finally:
            for one in drivers:
                one.kill()
                one.wait()
        # With them go the ports of the stores.
        until(lambda: not any(one.is_running() for one in processes), "the ranks' processes are gone", 120)


def test_ray_client(ray_cluster, tmp_path):
    process = driver(f"ray://127.0.0.1:{ray_cluster.client_port}", tmp_path, "client", stdout=subprocess.PIPE)
    said, _ = process.communicate(timeout=600)
    assert said.splitlines()[-3:] == ["sums [3.0, 3.0]", "raised True", "references True"], said
