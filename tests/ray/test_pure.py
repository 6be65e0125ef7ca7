# SPDX-License-Identifier: Apache-2.0
"""What needs no cluster: room, devices, names of nodes, whom to blame, logging."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
from ray.exceptions import RayActorError
from world import worker_env

from horovod.common.exceptions import HorovodInternalError
from horovod.ray import elastic, elastic_v2, ray_logger
from horovod.ray.devices import own_at, visible_devices
from horovod.ray.free_slots import Steady, free_slots
from horovod.ray.gathering import find_culprit
from horovod.ray.nodes import find_node, name_of, slots_by_name
from horovod.ray.room import shortage, workers_in
from horovod.ray.settings import create_settings
from horovod.ray.utils import detect_nics, nics_to_env_var


@pytest.mark.parametrize(
    "bundles, strategy, nodes, free, text",
    [
        ([{"CPU": 1}] * 4, "PACK", [{"CPU": 2}], {"CPU": 2}, "the cluster has only 2 CPU of 4"),
        ([{"CPU": 1, "GPU": 1}], "PACK", [{"CPU": 2}], {"CPU": 2}, "the cluster has only 0 GPU of 1"),
        ([{"CPU": 4}], "PACK", [{"CPU": 2}] * 2, {"CPU": 4}, "no node has 4 CPU by itself"),
        (
            [{"CPU": 1}] * 3, "STRICT_SPREAD", [{"CPU": 4}] * 2, {"CPU": 8},
            "3 nodes with 1 CPU are needed, 2 of 2 have that",
        ),
        ([{"CPU": 1}] * 2, "PACK", [{"CPU": 2}], {"CPU": 1}, "others use the cluster: free are 1 CPU of 2"),
        (
            [{"CPU": 2}] * 2, "PACK", [{"CPU": 2}, {"CPU": 3}], {"CPU": 4},
            "the resources are there, but not on the same nodes",
        ),
    ],
)  # fmt: skip
def test_shortage(bundles, strategy, nodes, free, text):
    assert shortage(bundles, strategy, nodes, free) == text


def test_workers_in_a_bundle():
    assert workers_in({"CPU": 4.0, "GPU": 1.0}, {"CPU": 1.0, "GPU": 1.0}) == 1
    assert workers_in({"CPU": 1.0}, {"CPU": 0.1}) == 10
    assert workers_in({}, {"CPU": 1.0}) == 0


@pytest.mark.parametrize(
    "ids, seen", [([["3"], ["1"]], "3,1"), ([["0", "1"], ["2", "3"]], "0,2,1,3"), ([[], []], "")]
)
def test_devices_of_a_node(ids, seen):
    assert visible_devices(ids) == seen


@pytest.mark.parametrize(
    "slot, own, count, seen",
    [(1, ["0"], 2, "1,0"), (0, ["1"], 2, "1,0"), (2, ["2"], 4, "0,1,2,3"), (3, ["0"], 2, "0")],
)
def test_devices_of_an_elastic_worker(slot, own, count, seen):
    assert own_at(slot, own, count) == seen


def node(name, number, alive=True, **resources):
    return {
        "NodeManagerHostname": name, "NodeID": f"{number:056x}"[::-1],
        "NodeManagerAddress": f"10.0.0.{number}", "Alive": alive, "Resources": resources,
    }  # fmt: skip


def test_names_of_nodes():
    nodes = [node("a", 1, alive=False, CPU=4.0), node("a", 2, CPU=4.0), node("b", 3, CPU=0.5)]
    assert slots_by_name(nodes, {"CPU": 1.0}) == {name_of(nodes[1]): 4}
    for name in (name_of(nodes[1]), nodes[1]["NodeID"], "a", "10.0.0.2"):
        assert find_node(nodes, name) is nodes[1]
    assert find_node(nodes, name_of(nodes[0])) is None


def test_slots_that_others_leave():
    four = node("a", 1, CPU=4.0)
    worker = {"CPU": 1.0}
    assert free_slots(four, {"CPU": 4.0}, 0, worker) == 4
    assert free_slots(four, {"CPU": 1.0}, 2, worker) == 3  # somebody else has one
    assert free_slots(four, {"CPU": 3.0}, 2, worker) == 4  # Ray has not heard of the second yet
    assert free_slots(four, {}, 2, worker) == 2


def test_numbers_that_change_for_a_moment_are_not_believed():
    steady = Steady(times=2)
    assert steady.take({"a": 2}) == {"a": 2}  # a new node counts at once
    assert steady.take({"a": 1}) == {"a": 2} and steady.take({"a": 2}) == {"a": 2}
    assert steady.take({"a": 3, "b": 1}) == {"a": 2, "b": 1}
    assert steady.take({"a": 3}) == {"a": 3}  # so does the loss of one
    assert steady.take({"a": 4}, idle=["a"]) == {"a": 4} and steady.take({"a": 0}, idle=["a"]) == {"a": 4}


def test_whom_to_blame():
    echo, own, gone = HorovodInternalError("lost"), ValueError("bad"), RayActorError()
    assert find_culprit([echo, None, own]) == 2
    assert find_culprit([echo, gone, own]) == 1
    assert find_culprit([None, echo, echo]) == 1


def test_ranks_import_neither_ray_nor_the_launcher_on_their_way():
    code = "import sys, horovod.ray.worker; print([n for n in ('ray', 'horovod.runner') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env=worker_env(), capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_names_of_both_modules_for_elastic_jobs():
    for name in ("RayHostDiscovery", "TestDiscovery"):
        assert getattr(elastic_v2, name) is getattr(elastic, name)
    with pytest.raises(AttributeError, match=r"module 'horovod.ray.elastic_v2' has no attribute 'Nothing'"):
        elastic_v2.Nothing  # noqa: B018


def test_interfaces():
    assert detect_nics(create_settings(nics={"eth1", "eth0"})) == {"eth0", "eth1"}
    assert nics_to_env_var({"eth1", "eth0"})["HOROVOD_GLOO_IFACE"] == "eth0"
    assert nics_to_env_var(detect_nics(None)) == {}


def test_logging_that_is_not_configured_warns_once():
    ray_logger.configure(None)
    with pytest.warns(RuntimeWarning, match="`ray_logger.log` called but logging is not configured."):
        ray_logger.log({"loss": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ray_logger.log({"loss": 2})
