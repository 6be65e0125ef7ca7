# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs on Ray: actors and nodes that die, nodes that go and come; survivors keep their processes."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import ray
import ray_functions as functions
from ray_here import alive_actors, cluster
from waiting import until

from horovod.ray import ElasticRayExecutor, RayExecutor, RayHostDiscovery, TestDiscovery


class Training:
    """functions.elastic_training on a thread; what it logs arrives here."""

    def __init__(self, executor, folder, steps=10):
        self.folder, self.sizes, self.outcome, self.logged = str(folder), [], None, []
        self._thread = threading.Thread(target=self._work, args=(executor, steps), daemon=True)
        self._thread.start()

    def _work(self, executor, steps):
        try:
            self.outcome = executor.run(
                functions.elastic_training, (self.folder, steps), callbacks=[self._log]
            )
        except BaseException as error:
            self.outcome = error

    def _log(self, info):
        self.logged.append(info["step"])
        if not self.sizes or self.sizes[-1] != info["size"]:
            self.sizes.append(info["size"])

    def grown_to(self, size):
        until(lambda: self.sizes[-1:] == [size] or self.outcome is not None, f"{size} ranks train", 120)
        assert self.sizes[-1] == size, self.outcome

    def pid(self, rank):
        with open(os.path.join(self.folder, f"pid.{rank}")) as file:
            return int(file.read())

    def finish(self):
        open(os.path.join(self.folder, "enough"), "w").close()
        self._thread.join(120)
        assert isinstance(self.outcome, list), self.outcome
        return self.outcome


@pytest.fixture(scope="module")
def one_node():
    """A cluster of one node with two CPUs, to which nodes are added; in place of the other cluster."""
    ray.shutdown()
    with cluster(2) as made:
        yield made


def executor(**kwargs):
    made = RayExecutor(RayExecutor.create_settings(), **kwargs)
    made.start()
    return made


def test_actors_and_nodes_come_and_go(one_node, tmp_path):
    training = Training(executor(min_workers=1, max_workers=3), tmp_path)
    training.grown_to(2)
    first = training.pid(0)
    os.kill(training.pid(1), signal.SIGKILL)
    training.grown_to(1)  # the survivor does not wait for
    training.grown_to(2)  # the one that takes the dead one's place
    for graceful in (True, False):
        node = one_node.add_node(num_cpus=1, object_store_memory=10**8)
        training.grown_to(3)
        one_node.remove_node(node, allow_graceful=graceful)
        training.grown_to(2)
    results = training.finish()
    assert [one["size"] for one in results] == [2, 2] and results[0]["pid"] == first  # the same process
    steps = results[0]["steps"]
    assert all(one["total"] == 12.0 * steps for one in results)  # nothing lost, nothing twice
    assert set(range(1, steps + 1)) == set(training.logged)
    until(lambda: not alive_actors(), "no actor is left")


def test_what_workers_raise_ends_the_job_when_it_happens_again(one_node):
    made = executor(min_workers=2, max_workers=2)
    with pytest.raises(RuntimeError, match="one or more processes exited with non-zero status") as caught:
        made.run(functions.raise_value_error)
    assert isinstance(caught.value.__cause__, ValueError) and "bad sample" in str(caught.value)
    until(lambda: not alive_actors(), "no actor is left")


def test_too_few_workers(one_node):
    with pytest.raises(RuntimeError, match="at least 5 Horovod processes. 2 slots are usable"):
        executor(min_workers=5, elastic_timeout=4).run(functions.where)


def test_what_elastic_jobs_cannot_do(one_node):
    made = executor(min_workers=1)
    with pytest.raises(NotImplementedError, match="ObjectRefs cannot be returned from Elastic runs"):
        made.run_remote(functions.where)
    with pytest.raises(NotImplementedError, match="Elastic mode does not support execute_single."):
        made.execute_single(functions.where)


def test_the_earlier_interface(one_node):
    settings = ElasticRayExecutor.create_settings(min_num_proc=1, max_num_proc=1, timeout_s=60)
    settings.discovery = TestDiscovery(1, 1, change_frequency_s=60, verbose=False)
    with pytest.warns(DeprecationWarning, match="use RayExecutor"):
        made = ElasticRayExecutor(settings, env_vars={"GREETING": "hello"}, override_discovery=False)
    made.start()
    assert made.run(lambda: os.environ["GREETING"]) == ["hello"]


def test_discovery(one_node):
    (slots,) = RayHostDiscovery().find_available_hosts_and_slots().values()
    assert slots == 2
    assert list(RayHostDiscovery(cpus_per_slot=2).find_available_hosts_and_slots().values()) == [1]
    assert RayHostDiscovery(use_gpu=True).find_available_hosts_and_slots() == {}


def test_discovery_for_tests_keeps_to_its_limits(monkeypatch):
    nodes = [
        {"NodeManagerHostname": f"m{n}", "NodeID": f"{n}" * 56, "Alive": True, "Resources": {"CPU": 1.0}}
        for n in range(5)
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    discovery = TestDiscovery(2, 4, change_frequency_s=0, verbose=False)
    seen = [len(discovery.find_available_hosts_and_slots()) for _ in range(50)]
    assert set(seen) == {2, 3, 4} and all(abs(a - b) <= 1 for a, b in zip(seen, seen[1:]))
