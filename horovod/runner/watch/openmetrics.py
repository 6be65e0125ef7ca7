# SPDX-License-Identifier: Apache-2.0
"""All ranks' metrics for Prometheus: `horovodrun --metrics-port 9400`, then scrape http://127.0.0.1:9400/metrics.

The text is written by prometheus_client, an extra: pip install horovod[metrics].
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Iterable, List, Mapping, Tuple

from horovod.runner.watch.server import Request, Response, Server
from horovod.runner.watch.verdicts import RED

try:
    from prometheus_client import CollectorRegistry, core
    from prometheus_client.exposition import choose_encoder
except ImportError as _error:
    raise ValueError("--metrics-port needs prometheus_client: pip install 'horovod[metrics]'") from _error

_LABELS = ("rank", "host")
# Metric, its help, key in a snapshot's "metrics", factor.
_COUNTERS: Tuple[Tuple[str, str, str, float], ...] = (
    ("horovod_submitted_tensors", "Tensors handed to the engine.", "submitted", 1),
    ("horovod_batches", "Batches executed.", "batches", 1),
    ("horovod_tensors", "Tensors executed.", "tensors", 1),
    ("horovod_fused_tensors", "Of these, in batches of two or more.", "fused_tensors", 1),
    ("horovod_bytes", "Payload of this rank.", "bytes", 1),
    ("horovod_execute_seconds", "Time inside batches.", "execute_us", 1e-6),
    ("horovod_cached_announcements", "Tensors announced by a number.", "cached_announcements", 1),
    ("horovod_full_announcements", "Tensors announced in full.", "full_announcements", 1),
    ("horovod_plans", "Plans received.", "plans", 1),
    ("horovod_errors", "Batches that failed.", "errors", 1),
    ("horovod_wait_seconds", "Time that this rank waited for others.", "wait_us", 1e-6),
    ("horovod_step_seconds", "Time of all steps.", "step_us", 1e-6),
    ("horovod_fusion_bytes", "Bytes that went through fused batches.", "fusion_bytes", 1),
    ("horovod_fusion_capacity_bytes", "Room that those batches had.", "fusion_capacity_bytes", 1),
    ("horovod_restarts", "How often this process started its engine anew.", "restarts", 1),
)
_KINDS: Tuple[Tuple[str, str, str, float], ...] = (
    ("horovod_kind_tensors", "Tensors", "count", 1),
    ("horovod_kind_bytes", "Payload", "bytes", 1),
    ("horovod_kind_seconds", "Time inside batches", "us", 1e-6),
)
_GAUGES: Tuple[Tuple[str, str, str], ...] = (
    ("horovod_queue_depth", "Tensors that wait or are worked on.", "queue_depth"),
    ("horovod_buffer_bytes", "Memory of the engine's buffers.", "buffer_bytes"),
)


class MetricsServer:
    """Serves /metrics until close()."""

    def __init__(
        self, address: str, port: int, view: Callable[[], Dict[str, Any]], say: Callable[[str], None]
    ) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Families(view))
        self._server = Server(address, port, self._answer, "--metrics-port")
        say(f"metrics: {self._server.url('/metrics')}")

    def close(self) -> None:
        """Stops listening."""
        self._server.close()

    def _answer(self, request: Request) -> Response:
        if request.path != "/metrics":
            return Response(404, b"/metrics\n")
        encode, kind = choose_encoder(request.headers.get("Accept", ""))
        return Response(body=encode(self._registry), kind=kind)


class _Families:
    def __init__(self, view: Callable[[], Dict[str, Any]]) -> None:
        self._view = view

    def describe(self) -> Iterable[Any]:
        return []

    def collect(self) -> List[Any]:
        """The newest of every rank, as prometheus_client wants it."""
        return families(self._view())


def families(view: Mapping[str, Any]) -> List[Any]:
    """What a view (collector.view) says in numbers."""
    made: List[Any] = []
    rows = [(row, [str(row["rank"]), row["host"]]) for row in view["ranks"] if row["rank"] >= 0]

    def add(family: Any, value: Callable[[Mapping[str, Any]], Any]) -> None:
        for row, labels in rows:
            number = value(row)
            if number is not None:
                family.add_metric(labels, float(number))
        made.append(family)

    def gauge(name: str, text: str, value: Callable[[Mapping[str, Any]], Any]) -> None:
        add(core.GaugeMetricFamily(name, text, labels=_LABELS), value)

    def counter(name: str, text: str, value: Callable[[Mapping[str, Any]], Any]) -> None:
        add(core.CounterMetricFamily(name, text, labels=_LABELS), value)

    gauge("horovod_up", "1 while the rank reports and holds up nobody.", lambda row: row["state"] not in RED)
    gauge("horovod_memory_bytes", "Resident memory of the rank.", lambda row: row["memory"])
    gauge("horovod_report_age_seconds", "Since the rank last reported.", lambda row: row["silent"])
    counter("horovod_steps", "Steps of training.", lambda row: row["steps"])
    for name, text, key, factor in _COUNTERS:
        counter(name, text, partial(_metric, key=key, factor=factor))
    for name, text, key in _GAUGES:
        gauge(name, text, partial(_metric, key=key))
    made += [*_by_kind(rows), _waited_for(rows), _latency(rows)]
    whole = core.GaugeMetricFamily("horovod_ranks", "Ranks that run.")
    whole.add_metric([], float(view["totals"]["ranks"]))
    return [*made, whole]


def _by_kind(rows: Any) -> Iterable[Any]:
    for name, text, key, factor in _KINDS:
        family = core.CounterMetricFamily(name, f"{text} by kind of collective.", labels=(*_LABELS, "kind"))
        for row, labels in rows:
            for kind, numbers in (row["metrics"].get("by_kind") or {}).items():
                family.add_metric([*labels, kind], numbers[key] * factor)
        yield family


def _waited_for(rows: Any) -> Any:
    family = core.CounterMetricFamily(
        "horovod_waited_for_seconds", "Time that this rank waited for another.", labels=(*_LABELS, "cause")
    )
    for row, labels in rows:
        for cause, microseconds in (row["metrics"].get("waited_for_us") or {}).items():
            family.add_metric([*labels, str(cause)], float(microseconds) / 1e6)
    return family


def _latency(rows: Any) -> Any:
    family = core.HistogramMetricFamily(
        "horovod_latency_seconds", "From handing a tensor in to its result.", labels=_LABELS
    )
    for row, labels in rows:
        found = row["metrics"].get("latency_us")
        if found:
            total, buckets = 0.0, []
            for bound, count in zip([*found["bounds"], None], found["counts"]):
                total += count
                buckets.append(("+Inf" if bound is None else str(bound / 1e6), total))
            family.add_metric(labels, buckets, sum_value=found["sum"] / 1e6)
    return family


def _metric(row: Mapping[str, Any], key: str, factor: float = 1) -> Any:
    value = row["metrics"].get(key)
    return None if value is None else value * factor
