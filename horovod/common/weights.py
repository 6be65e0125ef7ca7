# SPDX-License-Identifier: Apache-2.0
"""A cheap check, once, that the ranks train the same model: that their weights agree after the first step.

Ranks that did not start from the same weights, or whose gradients are not reduced, train happily and wrongly.
After its first step a front end hands over a fingerprint of each weight:

    check = weights.start([Fingerprint("fc.weight", bits, size), ...], process_set, "opt1.weights", advice)
    ...
    if check is not None and check.finished():        # at a later step: nobody waits for it
        check = None

Every member sends 400 bytes in one allgather, whatever the model. Nothing waits, so ranks that take different
turns cannot hang here. Who differs is said once, as a RuntimeWarning of the set's first member.
"""

from __future__ import annotations

import ctypes
import struct
import warnings
import zlib
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from horovod.common import config, engine
from horovod.common.basics import basics
from horovod.common.constants import ALLGATHER, UINT8
from horovod.common.exceptions import HorovodInternalError
from horovod.common.handles import Handle
from horovod.common.process_sets import ProcessSet, process_set_id

PARTS = 32  # weights are compared in so many parts, or one by one if there are fewer
_COUNT, _PART = struct.Struct("<Q"), struct.Struct("<Id")
_RECORD = _COUNT.size + PARTS * _PART.size

# Different kinds of processors round differently. Weights that are nearer to each other than this were not
# trained apart: one step of one's own moves them by a thousandth, a start of one's own by all they are.
ROUNDING = 1e-6


class Fingerprint(NamedTuple):
    """One weight, in short."""

    name: str
    bits: int  # a sum, or any other function, of all its bits; the same on all ranks
    magnitude: float  # the sum of the absolute values of a few elements


class _Part(NamedTuple):
    bits: int
    magnitude: float


class _Record(NamedTuple):
    """What one member sends."""

    tensors: int
    parts: Tuple[_Part, ...]

    def packed(self) -> bytes:
        return _COUNT.pack(self.tensors) + b"".join(_PART.pack(*part) for part in self.parts)

    @classmethod
    def unpacked(cls, data: bytes) -> _Record:
        parts = (_Part(*_PART.unpack_from(data, at)) for at in range(_COUNT.size, _RECORD, _PART.size))
        return cls(_COUNT.unpack_from(data)[0], tuple(parts))


def record_of(weights: Sequence[Fingerprint]) -> bytes:
    """The weights' record, cut into PARTS consecutive parts."""
    parts = []
    for group in _parts(weights):
        bits = zlib.crc32(b"".join(struct.pack("<Q", one.bits & (1 << 64) - 1) for one in group))
        parts.append(_Part(bits, sum(one.magnitude for one in group)))
    return _Record(len(weights), tuple(parts)).packed()


def _parts(weights: Sequence[Fingerprint]) -> List[Sequence[Fingerprint]]:
    if len(weights) <= PARTS:
        return [weights[i : i + 1] for i in range(PARTS)]
    cuts = [len(weights) * i // PARTS for i in range(PARTS + 1)]
    return [weights[start:end] for start, end in zip(cuts, cuts[1:])]


def difference(weights: Sequence[Fingerprint], records: Sequence[bytes], ranks: Sequence[int]) -> str:
    """Which members' records differ from the first one's, and where; empty if none does."""
    first, *others = (_Record.unpacked(record) for record in records)
    counts = [rank for rank, other in zip(ranks[1:], others) if other.tensors != first.tensors]
    if counts:
        return f"rank {counts[0]} has another number of them than rank {ranks[0]}, which has {first.tensors}"
    apart = [[i for i in range(PARTS) if _is_apart(first.parts[i], other.parts[i])] for other in others]
    wrong = [rank for rank, parts in zip(ranks[1:], apart) if parts]
    if not wrong:
        return ""
    group = _parts(weights)[min(i for parts in apart for i in parts)]
    where = group[0].name if len(group) == 1 else f"one of {group[0].name} to {group[-1].name}"
    who = f"rank {wrong[0]}" if len(wrong) == 1 else f"ranks {', '.join(map(str, wrong[:8]))}"
    more = f" and {len(wrong) - 8} more" if len(wrong) > 8 else ""
    return f"those of {who}{more} are not rank {ranks[0]}'s; the first to differ is {where}"


def _is_apart(one: _Part, other: _Part) -> bool:
    if one.bits == other.bits:
        return False
    # Not a <= comparison: what is not a number anywhere counts as apart.
    return not abs(one.magnitude - other.magnitude) <= ROUNDING * max(one.magnitude, other.magnitude)


class Check:
    """A check under way."""

    def __init__(self, weights: Sequence[Fingerprint], set_id: int, name: str, advice: str) -> None:
        self._weights = weights
        self._ranks = basics.process_set_ranks(set_id)
        self._advice = advice
        record = ctypes.create_string_buffer(record_of(weights), _RECORD)
        address = ctypes.addressof(record)
        request = engine.request(ALLGATHER, name, UINT8, (_RECORD,), address, process_set=set_id)
        self._handle = Handle(engine.submit([request]), _gathered, (record, request))

    def finished(self, stacklevel: int = 3) -> bool:
        """Whether the result is there; if it is and weights differ, warns. Does not wait.

        Args:
            stacklevel: whose line the warning shows; 3: the caller of the function that calls this.
        """
        try:
            if not self._handle.done():
                return False
            everything: bytes = self._handle.result()
        except (HorovodInternalError, ValueError):  # a rank has joined or left; training says so itself
            return True
        records = [everything[at : at + _RECORD] for at in range(0, len(everything), _RECORD)]
        text = difference(self._weights, records, self._ranks)
        if text and basics.rank() == self._ranks[0]:
            warnings.warn(
                f"The ranks' weights differ after the first step: {text}. Each such rank trains a model of "
                f"its own. {self._advice} HOROVOD_CHECK_WEIGHTS=0 turns this check off.",
                RuntimeWarning,
                stacklevel=stacklevel,
            )
        return True


def _gathered(submission: int) -> Any:
    return bytes(engine.take(submission, 0, 1))


def wanted(process_set: ProcessSet) -> bool:
    """Whether there is anything to check: it is not turned off, and others train the same model."""
    if not config.get("check_weights") or not process_set.included():
        return False
    return len(process_set.ranks or ()) > 1


def start(weights: Sequence[Fingerprint], process_set: ProcessSet, name: str, advice: str) -> Optional[Check]:
    """Sends this rank's fingerprints, in the same order of weights on all ranks; None if nothing is `wanted`.

    Args:
        name: of the operation, the same on all members and used by nothing else.
        advice: what to do when weights differ, in the words of the front end.
    """
    if not wanted(process_set):
        return None
    try:
        return Check(weights, process_set_id(process_set), name, advice)
    except (HorovodInternalError, ValueError):  # a rank left after its last step, or died: not our news
        return None
