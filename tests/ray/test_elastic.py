# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs on Ray: actors and nodes that die, nodes that go and come; survivors keep their processes."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import ray
import ray_functions as functions
from ray_here import CPUS, free
from waiting import until

from horovod.ray import ElasticRayExecutor, RayExecutor, RayHostDiscovery, TestDiscovery


class Training:
    """functions.elastic_training on a thread; what it logs arrives here."""

    def __init__(self, executor, folder, fn=None):
        self.folder, self.outcome, self.logged = str(folder), None, []
        self.sizes, self._seen = [], 0  # each number of ranks that trained, in order; the one last awaited
        self._thread = threading.Thread(target=self._work, args=(executor, fn), daemon=True)
        self._thread.start()

    def _work(self, executor, fn):
        call = (fn,) if fn else (functions.elastic_training, (self.folder, 10))
        try:
            self.outcome = executor.run(*call, callbacks=[self._log])
        except BaseException as error:
            self.outcome = error

    def _log(self, info):
        self.logged.append(info["step"])
        if not self.sizes or self.sizes[-1] != info["size"]:
            self.sizes.append(info["size"])

    def grown_to(self, size):
        """Waits until so many ranks train, or have trained, after those that were awaited before."""
        until(
            lambda: size in self.sizes[self._seen :] or self.outcome is not None, f"{size} ranks train", 120
        )
        assert size in self.sizes[self._seen :], self.outcome
        self._seen = self.sizes.index(size, self._seen)

    def pid(self, rank):
        path = os.path.join(self.folder, f"pid.{rank}")
        until(lambda: os.path.exists(path), f"rank {rank} has written its number")
        with open(path) as file:
            return int(file.read())

    def finish(self):
        open(os.path.join(self.folder, "enough"), "w").close()
        self._thread.join(120)
        assert isinstance(self.outcome, list), self.outcome
        return self.outcome


def executor(**kwargs):
    """One worker has a whole node for itself, so there are two slots."""
    made = RayExecutor(RayExecutor.create_settings(), cpus_per_worker=CPUS, **kwargs)
    made.start()
    return made


def test_actors_and_nodes_come_and_go(ray_cluster, tmp_path):
    training = Training(executor(min_workers=1, max_workers=3), tmp_path)
    training.grown_to(2)
    first = training.pid(0)
    hold = tmp_path / "hold"
    hold.touch()
    os.kill(training.pid(1), signal.SIGKILL)
    training.grown_to(1)  # the survivor does not wait for
    hold.unlink()
    training.grown_to(2)  # the one that takes the dead one's place
    for graceful in (True, False):
        node = ray_cluster.add_node(num_cpus=CPUS, object_store_memory=10**8)
        training.grown_to(3)
        ray_cluster.remove_node(node, allow_graceful=graceful)
        training.grown_to(2)
        until(lambda: sum(one["Alive"] for one in ray.nodes()) == 2, "Ray knows it, too", 120)
    results = training.finish()
    assert [one["size"] for one in results] == [2, 2] and results[0]["pid"] == first  # the same process
    steps = results[0]["steps"]
    assert all(one["total"] == 12.0 * steps for one in results)  # nothing lost, nothing twice
    assert set(range(1, steps + 1)) == set(training.logged)


def test_what_workers_raise_ends_the_job_when_it_happens_again(ray_cluster):
    made = executor(min_workers=2, max_workers=2)
    with pytest.raises(RuntimeError, match="one or more processes exited with non-zero status") as caught:
        made.run(functions.raise_value_error)
    assert isinstance(caught.value.__cause__, ValueError) and "bad sample" in str(caught.value)


def test_too_few_workers(ray_cluster):
    free(2 * CPUS)  # of those of earlier tests, too, Ray must have heard
    with pytest.raises(RuntimeError, match="at least 5 Horovod processes. 2 slots are usable"):
        executor(min_workers=5, elastic_timeout=4).run(functions.where)


def test_what_elastic_jobs_cannot_do(ray_cluster):
    made = executor(min_workers=1)
    with pytest.raises(NotImplementedError, match="ObjectRefs cannot be returned from Elastic runs"):
        made.run_remote(functions.where)
    with pytest.raises(NotImplementedError, match="Elastic mode does not support execute_single."):
        made.execute_single(functions.where)


def test_the_earlier_interface_and_hosts_that_seem_to_come_and_go(ray_cluster, tmp_path, capfd):
    settings = ElasticRayExecutor.create_settings(min_num_proc=1, max_num_proc=2, timeout_s=60)
    settings.discovery = TestDiscovery(
        1, 2, change_frequency_s=3600, cpus_per_worker=CPUS, verbose=False, _graceful=False
    )
    with pytest.warns(DeprecationWarning, match="use RayExecutor"):
        made = ElasticRayExecutor(
            settings, cpus_per_slot=CPUS, env_vars={"FOLDER": str(tmp_path)}, override_discovery=False
        )
    made.start()
    training = Training(made, tmp_path, fn=lambda: functions.elastic_training(os.environ["FOLDER"], 10))
    training.grown_to(1)
    for size in (2, 1):
        settings.discovery._next_change = 0.0  # now
        training.grown_to(size)
    (result,) = training.finish()
    assert result["total"] == 12.0 * result["steps"]
    assert "horovod.ray: " in capfd.readouterr().err  # that a worker was killed


def test_discovery(ray_cluster):
    def slots(**kwargs):
        return list(RayHostDiscovery(**kwargs).find_available_hosts_and_slots().values())

    assert slots() == [CPUS, CPUS] and slots(cpus_per_slot=CPUS) == [1, 1]
    assert slots(use_gpu=True) == [2, 2] and slots(use_gpu=True, gpus_per_slot=3) == []


NODES = [
    {"NodeManagerHostname": f"m{n}", "NodeID": f"{n}" * 56, "Alive": True, "Resources": {"CPU": 1.0}}
    for n in range(5)
]


def test_discovery_for_tests_keeps_to_its_limits(monkeypatch):
    monkeypatch.setattr(ray, "nodes", lambda: NODES)
    discovery = TestDiscovery(2, 4, change_frequency_s=0, verbose=False)
    seen = [len(discovery.find_available_hosts_and_slots()) for _ in range(50)]
    assert set(seen) == {2, 3, 4} and all(abs(a - b) <= 1 for a, b in zip(seen, seen[1:]))


@pytest.mark.parametrize("graceful", [True, False])
def test_discovery_for_tests_kills_workers_unless_it_is_graceful(monkeypatch, graceful):
    monkeypatch.setattr(ray, "nodes", lambda: NODES)
    discovery, killed = TestDiscovery(1, 2, 0, verbose=False, _graceful=graceful), []
    discovery.kill_workers = killed.append
    seen = [set(discovery.find_available_hosts_and_slots()) for _ in range(4)]
    gone = [next(iter(before - after)) for before, after in zip(seen, seen[1:]) if before - after]
    assert len(gone) == 1 and killed == ([] if graceful else gone)
