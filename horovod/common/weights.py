# SPDX-License-Identifier: Apache-2.0
"""A cheap check, once, that the ranks train the same model: that their weights agree after the first step.

Ranks that did not start from the same weights, or whose gradients are not reduced, train happily and wrongly.
A distributed optimizer keeps a `WeightCheck` and, while it is not over, calls it after each step on reduced
gradients:

    check = WeightCheck("after the first step", "Call hvd.broadcast_parameters(...) first.")
    ...
    if not check.over:
        check.after_step(process_set, lambda: [of_array(name, w) for name, w in weights])

Every member sends 392 bytes in one allgather, whatever the model. Nothing waits for it: a later step looks at
the result, so ranks that take different turns cannot hang here. Who differs is said once, as a RuntimeWarning
of the set's first member.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import struct
import warnings
import zlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from horovod.common import config, engine
from horovod.common.basics import basics
from horovod.common.constants import ALLGATHER, UINT8
from horovod.common.exceptions import HorovodInternalError
from horovod.common.handles import Handle
from horovod.common.log import log
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


def of_array(name: str, array: Any) -> Fingerprint:
    """The fingerprint of a weight that NumPy can read."""
    import numpy as np

    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.size == 0:
        return Fingerprint(name, 0, 0.0)
    words = flat.view(f"i{min(flat.itemsize, 8)}")
    some = np.abs(flat[sample(flat.size)])
    return Fingerprint(name, int(words.sum(dtype=np.int64)), float(some.astype(np.float64).sum()))


def sample(size: int) -> List[int]:
    """Which elements of a tensor make its `magnitude`."""
    last = size - 1
    return [0, last // 3, last * 2 // 3, last]


# ---------------------------------------------------------------------------------- the records --


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


# ------------------------------------------------------------------------------------ the check --


def wanted(process_set: ProcessSet) -> bool:
    """Whether there is anything to check: it is not turned off, and others train the same model."""
    shared = bool(process_set.included()) and len(process_set.ranks or ()) > 1
    return shared and bool(config.get("check_weights"))


# Checks of a set are matched by their order: the members' optimizers make their first steps in the same one.
_numbers: Dict[int, Iterator[int]] = collections.defaultdict(itertools.count)
basics.at_shutdown(_numbers.clear)


class WeightCheck:
    """Follows one optimizer until its weights have been compared once.

    Attributes:
        over: there is nothing left to do.
    """

    def __init__(self, when: str, advice: str, name: Optional[str] = None) -> None:
        """
        Args:
            when: the weights are compared, e.g. "after the first step".
            advice: what to do when they differ, in the words of the front end.
            name: of the operation, for front ends whose checks may start in another order on each member.
        """
        self.over = False
        self._name = name
        self._text = (
            f"The ranks' weights differ {when}: %s. Each such rank trains a model of its own. {advice}"
        )
        self._weights: Sequence[Fingerprint] = ()
        self._ranks: List[int] = []
        self._handle: Optional[Handle] = None

    def after_step(
        self,
        process_set: ProcessSet,
        fingerprints: Callable[[], Sequence[Fingerprint]],
        stacklevel: int = 3,
    ) -> None:
        """Called after each step on reduced gradients: starts the check, or looks at its result.

        Args:
            fingerprints: of all weights, in the same order on all members.
            stacklevel: whose line a warning shows; 3: the caller of the function that calls this.
        """
        try:
            if self._handle is None:
                self.over = not self._start(process_set, fingerprints)
            elif self._handle.done():
                self.over = True
                self._report(self._handle.result(), stacklevel + 1)
        except (HorovodInternalError, ValueError):  # a rank has joined, left or died: training says so itself
            self.over = True

    def _start(self, process_set: ProcessSet, fingerprints: Callable[[], Sequence[Fingerprint]]) -> bool:
        if not wanted(process_set):
            return False
        set_id = process_set_id(process_set)
        name = self._name or f"horovod.weights.{next(_numbers[set_id])}"
        try:
            self._weights = fingerprints()
        except (NotImplementedError, RuntimeError, TypeError) as error:  # weights of an unusual kind
            log.info("the ranks' weights are not compared: %s", error)
            return False
        self._ranks = basics.process_set_ranks(set_id)
        record = ctypes.create_string_buffer(record_of(self._weights), _RECORD)
        address = ctypes.addressof(record)
        request = engine.request(ALLGATHER, name, UINT8, (_RECORD,), address, process_set=set_id)
        self._handle = Handle(engine.submit([request]), _gathered, (record, request))
        return True

    def _report(self, everything: bytes, stacklevel: int) -> None:
        records = [everything[at : at + _RECORD] for at in range(0, len(everything), _RECORD)]
        text = difference(self._weights, records, self._ranks)
        if text and basics.rank() == self._ranks[0]:
            end = " HOROVOD_CHECK_WEIGHTS=0 turns this check off."
            warnings.warn(self._text % text + end, RuntimeWarning, stacklevel=stacklevel)


def _gathered(submission: int) -> bytes:
    return bytes(engine.take(submission, 0, 1))
