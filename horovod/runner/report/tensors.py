# SPDX-License-Identifier: Apache-2.0
"""Which tensors cost the most. Pure."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Sequence

from horovod.runner.report.batches import Batch
from horovod.runner.report.spending import Spending
from horovod.runner.report.traces import Trace


@dataclasses.dataclass
class TensorRow:
    """A tensor over the whole job, in microseconds."""

    name: str
    kind: str = ""
    count: int = 0
    bytes: int = 0  # of one
    moving: float = 0.0  # on one rank; of a fused batch its part by bytes
    waited: float = 0.0  # on average over ranks


def by_tensor(trace: Trace, moved: Sequence[Batch], spendings: Sequence[Spending]) -> List[TensorRow]:
    """All tensors of a rank, the most expensive first."""
    rows: Dict[str, TensorRow] = {}
    for op in trace.operations:
        row = rows.setdefault(op.name, TensorRow(op.name, op.kind))
        row.count += 1
        row.bytes = max(row.bytes, op.bytes)
    for batch in moved:
        whole = sum(rows[name].bytes for name in batch.names)
        for name in batch.names:
            share = rows[name].bytes / whole if whole else 1 / len(batch.names)
            rows[name].moving += batch.microseconds * share
    for spending in spendings:
        for wait in spending.waits:
            if wait.name in rows:
                rows[wait.name].waited += wait.length / len(spendings)
    return sorted(rows.values(), key=lambda row: -(row.moving + row.waited))
