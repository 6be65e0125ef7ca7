# SPDX-License-Identifier: Apache-2.0
"""Snapshots as OpenMetrics, read by prometheus_client's parser; the docs and Grafana name what there is."""

from __future__ import annotations

import json
import os
import re

import pytest
from launching import ROOT

from horovod.runner.watch.collector import Collector

parser = pytest.importorskip("prometheus_client.openmetrics.parser")

METRICS = {
    "submitted": 12, "tensors": 11, "wait_us": 2_500_000, "queue_depth": 3,
    "waited_for_us": {"1": 1_500_000}, "by_kind": {"ALLREDUCE": {"count": 4, "bytes": 4096, "us": 7}},
    "latency_us": {"bounds": [100, 1000], "counts": [5, 3, 1], "sum": 4500},
}  # fmt: skip


def families():
    from prometheus_client import CollectorRegistry
    from prometheus_client.openmetrics.exposition import generate_latest

    from horovod.runner.watch import openmetrics

    collector = Collector("train.py", 0.0)
    for rank in range(2):
        collector.started(str(rank), "node7", rank)
    collector.reported("0", {"rank": 0, "steps": 9, "memory_bytes": 77, "metrics": METRICS}, 1.0)
    collector.started("new", "node8")  # has no rank yet: no labels for it

    class Families:
        def collect(self):
            return openmetrics.families(collector.view(2.0, metrics=True))

    registry = CollectorRegistry()
    registry.register(Families())
    return list(parser.text_string_to_metric_families(generate_latest(registry).decode()))


def test_values_labels_and_units():
    found = {}
    for family in families():
        for one in family.samples:
            found[one.name, tuple(sorted(one.labels.items()))] = one.value
    me = (("host", "node7"), ("rank", "0"))
    assert found["horovod_steps_total", me] == 9 and found["horovod_memory_bytes", me] == 77
    assert found["horovod_wait_seconds_total", me] == 2.5 and found["horovod_queue_depth", me] == 3
    assert found["horovod_waited_for_seconds_total", (("cause", "1"), *me)] == 1.5
    assert (
        found["horovod_kind_bytes_total", (("host", "node7"), ("kind", "ALLREDUCE"), ("rank", "0"))] == 4096
    )
    buckets = [found["horovod_latency_seconds_bucket", (("host", "node7"), ("le", le), ("rank", "0"))]
               for le in ("0.0001", "0.001", "+Inf")]  # fmt: skip
    assert buckets == [5, 8, 9] and found["horovod_latency_seconds_sum", me] == 0.0045
    assert not any("node8" in str(labels) for _, labels in found)


@pytest.mark.parametrize("path", ["docs/dashboard.md", "docs/assets/grafana.json"])
def test_what_the_docs_and_grafana_name_exists(path):
    names = set()
    for family in families():
        suffixes = {"counter": ["_total"], "histogram": ["", "_bucket"]}.get(family.type, [""])
        names |= {family.name + suffix for suffix in suffixes}
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = file.read()
    if path.endswith(".json"):
        text = " ".join(target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"])
    named = set(re.findall(r"\bhorovod_\w+", text))
    assert named and named <= names, named - names
    if path.endswith(".md"):
        assert names - {"horovod_latency_seconds_bucket"} <= named, names - named  # all are documented
