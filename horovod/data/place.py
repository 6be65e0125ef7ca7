# SPDX-License-Identifier: Apache-2.0
"""A place in the data: the epoch, and what was taken of it; as plain data, to be saved."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict, Tuple

from horovod.data.dealing import Groups, Mixing, Stage

_VERSION = 1


@dataclass(frozen=True)
class Place:
    """After these stages of an epoch."""

    epoch: int = 0
    stages: Tuple[Stage, ...] = ()

    def rows_left(self, groups: Groups) -> int:
        """Rows of the epoch that nobody has taken."""
        return groups.total - sum(stage.size * stage.rows for stage in self.stages)

    def after(self, size: int, rows: int, mixing: Mixing) -> Place:
        """The place when `size` ranks have taken `rows` rows more each."""
        return Place(self.epoch, (*self.stages, Stage(size, rows, mixing))) if rows else self

    def next_epoch(self) -> Place:
        """The start of the next epoch."""
        return Place(self.epoch + 1)

    def to_dict(self, groups: Groups) -> Dict[str, Any]:
        """As plain data, with what tells whether the dataset is still the same."""
        return {
            "version": _VERSION,
            "row_groups": len(groups.rows),
            "rows": groups.total,
            "epoch": self.epoch,
            "stages": [asdict(stage) for stage in self.stages],
        }

    @staticmethod
    def from_dict(state: Dict[str, Any], groups: Groups) -> Place:
        """The opposite. Raises ValueError if the place is one in other data."""
        if state.get("version") != _VERSION:
            raise ValueError(f"not a place that this version of the reader has saved: {state!r}")
        if (state["row_groups"], state["rows"]) != (len(groups.rows), groups.total):
            raise ValueError(
                f"the data has changed since the place was saved: {state['rows']} rows in "
                f"{state['row_groups']} row groups then, "
                f"{groups.total} rows in {len(groups.rows)} row groups now"
            )
        stages = tuple(Stage(one["size"], one["rows"], Mixing(**one["mixing"])) for one in state["stages"])
        return Place(state["epoch"], stages)
