# SPDX-License-Identifier: Apache-2.0
"""RayExecutor on a real cluster: places, results, failures, and nothing left behind."""

from __future__ import annotations

import os
import socket

import pytest
import ray
import ray_functions as functions
from ray_here import CPUS, free, nothing_left

from horovod.ray import RayExecutor


@pytest.fixture(scope="module")
def shared(two_nodes):
    """An executor for all tests that do it no harm: two ranks on each of two nodes, GPUs, an executable."""
    with nothing_left():
        made = RayExecutor(RayExecutor.create_settings(), num_hosts=2, num_workers_per_host=2, use_gpu=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOROVOD_FUSION_THRESHOLD", "1048576")
            made.start(functions.Counter, [10], {"step": 5}, extra_env_vars={"GREETING": "hello"})
        yield made
        made.shutdown()


@pytest.fixture
def executor(ray_cluster):
    """Makes executors that are started, and ends them."""
    made = []

    def make(start=None, **kwargs):
        one = RayExecutor(kwargs.pop("settings", RayExecutor.create_settings()), **kwargs)
        made.append(one)
        one.start(**(start or {}))
        return one

    yield make
    for one in made:
        one.shutdown()


def column(results, name):
    return [result[name] for result in results]


def test_ranks_by_host(shared):
    results = shared.run(functions.where)
    assert column(results, "rank") == [0, 1, 2, 3] and column(results, "sum") == [10.0] * 4
    assert column(results, "local_rank") == [0, 1, 0, 1] and column(results, "local_size") == [2] * 4
    assert column(results, "cross_rank") == [0, 0, 1, 1] and column(results, "cross_size") == [2] * 4
    nodes = column(results, "node")
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
    assert len(set(column(results, "pid"))) == 4
    assert set(column(results, "host")) == {socket.gethostname()}  # for people; the node's id for memory


def test_calls_that_follow_each_other(shared):
    first, second = shared.run(functions.where), shared.run(functions.where)
    assert column(first, "sum") == column(second, "sum") == [10.0] * 4
    assert column(first, "pid") == column(second, "pid")  # the processes stay
    references = shared.run_remote(lambda a, b: a * b, [6], {"b": 7})
    assert ray.get(references) == [42] * 4


def test_gpus_of_a_node_are_visible_to_its_ranks_each_first_at_its_own(shared):
    for own, visible, local_rank in shared.run(functions.gpus):
        assert len(own) == 1 and sorted(visible.split(",")) == ["0", "1"]
        assert visible.split(",")[local_rank] == own[0]


def test_executables(shared):
    assert shared.execute(lambda counter: counter.count()) == [15, 20, 25, 30]
    assert shared.execute_single(lambda counter: counter.count()) == 20
    assert shared.execute(lambda counter: counter.count()) == [25, 30, 40, 50]


@pytest.mark.parametrize(
    "name, value",
    [("GREETING", "hello"), ("HOROVOD_FUSION_THRESHOLD", "1048576")],
    ids=["extra", "inherited"],
)
def test_variables(shared, name, value):
    """Those that start() was given, and the settings in the environment of the process that called it."""
    assert shared.run(lambda: os.environ[name]) == [value] * 4


def test_an_exception_on_all_ranks_leaves_their_world_alone(shared):
    shared.run(functions.where)
    with pytest.raises(ZeroDivisionError):
        shared.execute(lambda counter: 1 // 0)
    import horovod.numpy as hvd

    assert shared.run(lambda: hvd.size()) == [4] * 4  # nobody has called hvd.init() again


def test_what_a_rank_raises_is_raised_and_the_others_are_let_go(shared):
    with pytest.raises(ValueError, match="bad batch") as caught:
        shared.run(functions.fail_on, (1, "raise"))
    assert "ray_functions.py" in str(caught.value)  # the remote traceback
    assert column(shared.run(functions.where), "sum") == [10.0] * 4  # a new world of the same processes


def test_another_executor_at_the_same_time_packed_on_one_node(shared, executor):
    free(CPUS)  # half of them on each node
    references = shared.run_remote(functions.where), executor(num_workers=2).run_remote(functions.where)
    assert column(ray.get(references[0]), "sum") == [10.0] * 4
    second = ray.get(references[1])
    assert column(second, "sum") == [3.0, 3.0] and column(second, "local_size") == [2, 2]


def test_a_rank_that_dies_is_named(executor):
    one = executor(num_workers=2)
    for function, args in ((functions.fail_on, (1, "die")), (functions.die_before_init, (1,))):
        with pytest.raises(ray.exceptions.RayActorError, match="rank 1 on .* is gone; call shutdown"):
            one.run(function, args)
        one.start()  # anew
    assert column(one.run(functions.where), "sum") == [3.0, 3.0]


def test_an_executable_that_cannot_be_made(executor):
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        executor(num_workers=1, start=dict(executable_cls=functions.Counter))


@pytest.mark.parametrize(
    "kwargs, text",
    [
        (dict(num_workers=40), r"40 x \(1 CPU\): the cluster has only 8 CPU of 40\. Ask for less"),
        (dict(num_workers=1, use_gpu=True, gpus_per_worker=3), r"no node has 1 CPU, 3 GPU by itself"),
        (
            dict(num_hosts=3),
            r"3 x \(1 CPU\), each on a node of its own: 3 nodes with 1 CPU are needed, 2 of 2 have that",
        ),
        (dict(num_hosts=2, num_workers_per_host=3), r"others use the cluster: free are 4 CPU of 6"),
    ],
    ids=["cpus", "gpus", "hosts", "busy"],
)
def test_missing_resources_are_named(shared, executor, kwargs, text):
    free(CPUS)
    settings = RayExecutor.create_settings(placement_group_timeout_s=0.2)
    with pytest.raises(TimeoutError, match="Placement group creation timed out. .*" + text):
        executor(settings=settings, **kwargs)


def test_a_placement_group_of_the_caller(ray_cluster):
    """As in a trial of Ray Tune: the caller is in the first bundle, the ranks go into the others."""

    @ray.remote(num_cpus=1)
    def trial(workers, limit=240):
        executor = RayExecutor(
            RayExecutor.create_settings(placement_group_timeout_s=limit), num_workers=workers
        )
        executor.start()
        try:
            group = ray.util.get_current_placement_group()
            inside = executor.run(functions.current_group)
            return [one == group.id.hex() for one in inside]
        finally:
            executor.shutdown()

    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @ray.remote(num_cpus=1)
    class Holder:
        def ready(self):
            return True

    def inside(bundle):
        return PlacementGroupSchedulingStrategy(group, bundle, placement_group_capture_child_tasks=True)

    group = ray.util.placement_group([{"CPU": 1}] * 3)
    run = trial.options(scheduling_strategy=inside(0)).remote
    try:
        assert ray.get(run(2)) == [True, True]
        with pytest.raises(ValueError, match=r"4 workers of 1 CPU do not fit .* room for 3: .* 3 x"):
            ray.get(run(4))
        # A task that waits lends its CPU; these actors do not.
        holders = [Holder.options(scheduling_strategy=inside(bundle)).remote() for bundle in (1, 2)]
        ray.get([holder.ready.remote() for holder in holders])
        with pytest.raises(TimeoutError, match="[01] of 2 workers of 1 CPU run after 2 s"):
            ray.get(run(2, 2))
    finally:
        ray.util.remove_placement_group(group)


# ---------------------------------------------------------------------------------- wrong arguments --


@pytest.mark.parametrize(
    "kwargs, text",
    [
        (dict(max_workers=2), "`max_workers` provided without any positive `min_workers`"),
        (dict(max_workers=2, min_workers=0), "`max_workers` provided without any positive `min_workers`"),
        (dict(min_workers=1, num_workers=2), "Both `min_workers` and `num_workers` provided."),
        (dict(num_workers=1, gpus_per_worker=1), "gpus_per_worker is set, but use_gpu is False. "),
        (dict(num_workers=1, gpus_per_worker=0, use_gpu=True), "gpus_per_worker must be >= 1: Got 0."),
    ],
)
def test_wrong_arguments(kwargs, text):
    with pytest.raises(ValueError) as caught:
        RayExecutor(RayExecutor.create_settings(), **kwargs)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("kwargs", [dict(num_workers=1, num_hosts=1), {}])
def test_workers_or_hosts(ray_cluster, kwargs):
    with pytest.raises(AssertionError, match="Either `num_workers` or `num_hosts`"):
        RayExecutor(**kwargs).start()


def test_not_started(ray_cluster):
    one = RayExecutor(num_workers=1)
    with pytest.raises(RuntimeError, match=r"not started: call start\(\) first"):
        one.run(functions.where)
    one.shutdown()


def test_an_identity_file_is_written_for_its_owner_alone(tmp_path):
    path = tmp_path / "key"
    settings = RayExecutor.create_settings(ssh_identity_file=str(path), ssh_str="secret")
    assert path.read_text() == "secret" and path.stat().st_mode & 0o777 == 0o600
    RayExecutor.create_settings(ssh_identity_file=str(path), ssh_str="other")
    assert path.read_text() == "secret" and settings.ssh_identity_file == str(path)
    assert settings.start_timeout.remaining() <= 30
