# SPDX-License-Identifier: Apache-2.0
"""The training of elastic_worker.py under torchft: a lighthouse, and replicas; whoever dies is replaced.

    elastic_torchft.py FOLDER REPLICAS PATIENCE_MS

Prints what elastic_worker.py prints; "rank" is the replica's number, which the one in its place has too.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import time
from typing import Any, Dict

import torch
import torch.distributed as dist
import torchft
from torchft.coordination import LighthouseServer

from benchmarks.elastic_worker import born, net, one_step, say


def launch(folder: str, replicas: int, patience_ms: int) -> None:
    """Keeps all replicas running until one has seen that it is enough.

    Args:
        patience_ms: how long a replica may be silent, and a collective may wait for data.
    """
    lighthouse = LighthouseServer(
        bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=60000, heartbeat_timeout_ms=patience_ms
    )
    port = lighthouse.address().rsplit(":", 1)[1]
    env = dict(os.environ, TORCHFT_LIGHTHOUSE=f"http://127.0.0.1:{port}")

    def start(number: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, __file__, "replica", folder, str(number), str(patience_ms)], env=env
        )

    running = {number: start(number) for number in range(replicas)}
    while not os.path.exists(f"{folder}/enough"):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # somebody ended
        for number, process in running.items():
            if process.poll() is not None and not os.path.exists(f"{folder}/enough"):
                running[number] = start(number)
    for process in running.values():
        process.kill()
        process.wait()
    lighthouse.shutdown()


class Averaging(torchft.Optimizer):  # type: ignore[misc]
    """Averages the gradients, then decides with the others whether the step counts.

    In place of torchft.DistributedDataParallel: that of 0.2.0 ends the survivors by an AssertionError when
    Gloo's allreduce fails.
    """

    def step(self, closure: Any = None) -> None:
        """Average and update."""
        gradients = [one.grad for group in self.param_groups for one in group["params"]]
        for work in [self.manager.allreduce(one) for one in gradients]:
            work.wait()
        super().step(closure)


def replica(folder: str, number: int, patience_ms: int) -> None:
    """Survivors go on in their processes, without the step that failed; who is new gets the state of one."""
    start = born()
    model = net()
    plain = torch.optim.SGD(model.parameters(), lr=0.01)
    one_step(model, plain)
    ready = time.time()

    def load(state: Dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(milliseconds=patience_ms)),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": plain.state_dict()},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        replica_id=f"replica{number}",
    )
    optimizer = Averaging(manager, plain)
    while not os.path.exists(f"{folder}/enough"):
        before = manager.current_step()
        one_step(model, optimizer)
        if manager.current_step() > before:  # else it was not whole
            size = manager.num_participants()
            say(event="step", step=before + 1, rank=number, size=size, startup=ready - start)
    os._exit(0)  # the manager's threads would wait for the other replicas


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "replica":
        replica(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        launch(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
