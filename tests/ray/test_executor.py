# SPDX-License-Identifier: Apache-2.0
"""RayExecutor on a real cluster: places, results, failures, and nothing left behind."""

from __future__ import annotations

import pytest
import ray
import ray_functions as functions

from horovod.ray import RayExecutor


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


def test_ranks_by_host(executor):
    results = executor(num_hosts=2, num_workers_per_host=2).run(functions.where)
    assert column(results, "rank") == [0, 1, 2, 3] and column(results, "sum") == [10.0] * 4
    assert column(results, "local_rank") == [0, 1, 0, 1] and column(results, "local_size") == [2] * 4
    assert column(results, "cross_rank") == [0, 0, 1, 1] and column(results, "cross_size") == [2] * 4
    nodes = column(results, "node")
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
    assert len(set(column(results, "pid"))) == 4
    import socket

    assert set(column(results, "host")) == {socket.gethostname()}  # for people; the node's id for memory


def test_packed_workers_and_calls_that_follow_each_other(executor):
    one = executor(num_workers=2)
    first, second = one.run(functions.where), one.run(functions.where)
    assert column(first, "sum") == column(second, "sum") == [3.0, 3.0]
    assert column(first, "pid") == column(second, "pid")  # the processes stay
    references = one.run_remote(lambda a, b: a * b, [6], {"b": 7})
    assert ray.get(references) == [42, 42]


def test_gpus_of_a_node_are_visible_to_its_ranks_each_first_at_its_own(executor):
    results = executor(num_hosts=2, num_workers_per_host=2, use_gpu=True).run(functions.gpus)
    for own, visible, local_rank in results:
        assert len(own) == 1 and sorted(visible.split(",")) == ["0", "1"]
        assert visible.split(",")[local_rank] == own[0]


def test_executables_and_variables(executor):
    one = executor(
        num_workers=2,
        start=dict(
            executable_cls=functions.Counter, executable_args=[10], executable_kwargs={"step": 5},
            extra_env_vars={"GREETING": "hello"},
        ),
    )  # fmt: skip
    assert one.execute(lambda counter: counter.count()) == [15, 20]
    assert one.execute_single(lambda counter: counter.count()) == 20
    assert one.execute(lambda counter: counter.count()) == [25, 30]
    import os

    assert one.run(lambda: os.environ["GREETING"]) == ["hello", "hello"]


def test_settings_of_this_process_reach_the_ranks(executor, monkeypatch):
    import os

    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "1048576")
    assert executor(num_workers=1).run(lambda: os.environ["HOROVOD_FUSION_THRESHOLD"]) == ["1048576"]


def test_two_executors_at_a_time(executor):
    first, second = executor(num_workers=2), executor(num_workers=3)
    references = first.run_remote(functions.where), second.run_remote(functions.where)
    assert column(ray.get(references[0]), "sum") == [3.0, 3.0]
    assert column(ray.get(references[1]), "sum") == [6.0, 6.0, 6.0]


def test_what_a_rank_raises_is_raised_and_the_others_are_let_go(executor):
    one = executor(num_workers=3)
    with pytest.raises(ValueError, match="bad batch") as caught:
        one.run(functions.fail_on, (1, "raise"))
    assert "ray_functions.py" in str(caught.value)  # the remote traceback
    assert column(one.run(functions.where), "sum") == [6.0, 6.0, 6.0]  # a new world of the same processes


def test_an_exception_on_all_ranks_leaves_their_world_alone(executor):
    one = executor(num_workers=2, start=dict(executable_cls=functions.Counter, executable_args=[0]))
    with pytest.raises(ZeroDivisionError):
        one.execute(lambda counter: 1 // 0)
    import horovod.numpy as hvd

    assert one.execute(lambda counter: hvd.size()) == [2, 2]  # nobody has called hvd.init() again


@pytest.mark.parametrize(
    "function, args",
    [(functions.fail_on, (1, "die")), (functions.die_before_init, (1,))],
    ids=["in a collective", "before init"],
)
def test_a_rank_that_dies_is_named(executor, function, args):
    one = executor(num_workers=3)
    with pytest.raises(ray.exceptions.RayActorError, match="rank 1 on .* is gone; call shutdown"):
        one.run(function, args)
    one.start()  # anew
    assert column(one.run(functions.where), "sum") == [6.0, 6.0, 6.0]


def test_an_executable_that_cannot_be_made(executor):
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        executor(num_workers=2, start=dict(executable_cls=functions.Counter))


@pytest.mark.parametrize(
    "kwargs, text",
    [
        (dict(num_workers=40), r"40 x \(1 CPU\): the cluster has only 6 CPU of 40\. Ask for less"),
        (dict(num_workers=1, use_gpu=True, gpus_per_worker=3), r"no node has 1 CPU, 3 GPU by itself"),
        (
            dict(num_hosts=3),
            r"3 x \(1 CPU\), each on a node of its own: 3 nodes with 1 CPU are needed, 2 of 2 have that",
        ),
        (dict(num_hosts=2, num_workers_per_host=3), r"others use the cluster: free are 3 CPU of 6"),
    ],
    ids=["cpus", "gpus", "hosts", "busy"],
)
def test_missing_resources_are_named(executor, kwargs, text):
    if "busy" in text or "others" in text:
        executor(num_workers=3)
    settings = RayExecutor.create_settings(placement_group_timeout_s=1)
    with pytest.raises(TimeoutError, match="Placement group creation timed out. .*" + text):
        executor(settings=settings, **kwargs)


def test_a_placement_group_of_the_caller(ray_cluster):
    """As in a trial of Ray Tune: the caller is in the first bundle, the ranks go into the others."""

    @ray.remote(num_cpus=1)
    def trial(workers, limit=60):
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
        with pytest.raises(TimeoutError, match="[01] of 2 workers of 1 CPU run after 8 s"):
            ray.get(run(2, 8))
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
