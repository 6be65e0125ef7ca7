# SPDX-License-Identifier: Apache-2.0
"""What the numbers mean, in sentences, each with what to do next. Pure."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional

from horovod.runner.report.analysis import Analysis
from horovod.runner.report.units import bytes_text, percent, rate_text

_NOTICEABLE = 0.05  # of the time: less is not worth a sentence
_SMALL_BATCH = 64 << 10


class Finding(NamedTuple):
    """A sentence about the job, and one about what to do."""

    weight: float  # the share of the time it is about: the more, the further up
    what: str
    advice: str


def findings(analysis: Analysis) -> List[Finding]:
    """All findings, the most expensive first; at least one."""
    found = [one for rule in _RULES for one in [rule(analysis)] if one is not None]
    found.sort(key=lambda one: -one.weight)
    return found or [_all_is_well(analysis)]


def _slow_rank(analysis: Analysis) -> Optional[Finding]:
    caused = {rank: time for rank, time in analysis.caused().items() if rank >= 0}
    if not caused:
        return None
    worst = next(iter(caused))
    share = caused[worst] / analysis.window
    if share < _NOTICEABLE or caused[worst] < 0.5 * sum(caused.values()):
        return None
    if _whole_host(analysis, caused) is not None:
        return None  # a sentence of its own
    label = analysis.job.label(worst)
    return Finding(
        share,
        f"{label[0].upper()}{label[1:]} made the others wait {percent(share)} of the time.",
        _advice_for_slow_rank(analysis, worst),
    )


def _advice_for_slow_rank(analysis: Analysis, rank: int) -> str:
    waits = [one for spending in analysis.spendings for one in spending.waits if one.culprit == rank]
    whole = sum(one.length for one in waits)
    late = sum(one.length for one in waits if one.first)
    early = sum(one.length for one in waits if one.time <= analysis.first_step_done)
    if len(analysis.steps) > 3 and whole and early > 0.6 * whole:
        return (
            "Nearly all of that was in the first step: it started later than the others (imports, "
            "compilation, first read of its data). If that does not come back, there is nothing to mend."
        )
    if whole and late < 0.5 * whole:
        return (
            f"It fell behind within the steps: is rank {rank}'s processor slower, shared with something "
            "else, or throttled? Compare nvidia-smi or top on its host with another host's; see that its "
            "batches are no larger than the others'."
        )
    return (
        "It was late already for the first tensor of a step: look at its data loader (slow disk, fewer "
        f"worker processes, larger files), and at what only rank {rank} does between steps, e.g. logging, "
        "evaluation or checkpoints."
    )


def _slow_host(analysis: Analysis) -> Optional[Finding]:
    caused = {rank: time for rank, time in analysis.caused().items() if rank >= 0}
    host = _whole_host(analysis, caused)
    if host is None:
        return None
    ranks = [trace.rank for trace in analysis.job.traces if trace.host == host]
    share = sum(caused.get(rank, 0.0) for rank in ranks) / analysis.window
    return Finding(
        share,
        f"The {len(ranks)} ranks of {host} made the others wait {percent(share)} of the time, together.",
        f"It is {host} itself rather than one of its ranks: look at what else runs there, at its cores per "
        "rank, its storage and its network card.",
    )


def _whole_host(analysis: Analysis, caused: Dict[int, float]) -> Optional[str]:
    """The host whose ranks together are to blame, none of them for most of it; not if it is the only host."""
    hosts: Dict[str, List[int]] = {}
    for trace in analysis.job.traces:
        hosts.setdefault(trace.host, []).append(trace.rank)
    whole = sum(caused.values())
    for host, ranks in hosts.items():
        times = [caused.get(rank, 0.0) for rank in ranks]
        noticeable = sum(times) > max(0.7 * whole, _NOTICEABLE * analysis.window)
        if host and len(hosts) > 1 and len(ranks) > 1 and noticeable and max(times) < 0.7 * sum(times):
            return host
    return None


def _uneven(analysis: Analysis) -> Optional[Finding]:
    caused = {rank: time for rank, time in analysis.caused().items() if rank >= 0}
    share = analysis.share("wait")
    if share < _NOTICEABLE or (caused and max(caused.values()) >= 0.5 * sum(caused.values())):
        return None
    if not caused:
        return Finding(
            share,
            f"Ranks waited for each other {percent(share)} of the time; this file does not say for whom.",
            "Write the files of all ranks (every rank does, with HOROVOD_TIMELINE on all of them) and give "
            "them all.",
        )
    if _whole_host(analysis, caused) is not None:
        return None
    return Finding(
        share,
        f"Ranks waited for each other {percent(share)} of the time, and took turns in being the last.",
        "No single rank is slow: their work differs from step to step. Make batches equally long (sort or "
        "bucket by length, drop the last partial batch), and read data ahead.",
    )


def _bound_by_communication(analysis: Analysis) -> Optional[Finding]:
    share = analysis.share("communication")
    if share < 0.2:
        return None
    return Finding(
        share,
        f"Ranks did nothing but communicate {percent(share)} of the time.",
        "Send less or less often: a larger batch per rank, backward_passes_per_step=2 or more, "
        "compression=Compression.fp16. If horovodrun --check is fast on these hosts but the job is not, "
        "look at its bandwidth by size.",
    )


def _no_overlap(analysis: Analysis) -> Optional[Finding]:
    share = analysis.share("communication")
    if share < 0.1 or analysis.overlap > 0.1 or len(analysis.batches) < 10:
        return None
    return Finding(
        share * 0.9,
        f"Only {percent(analysis.overlap)} of the communication went on behind compute.",
        "Submit gradients as soon as they are there: DistributedOptimizer and DistributedGradientTape do; "
        "calls of allreduce() one after the other, after the backward pass, do not (allreduce_async_ and "
        "synchronize do).",
    )


def _small_batches(analysis: Analysis) -> Optional[Finding]:
    reductions = [one for one in analysis.batches if one.kind in ("ALLREDUCE", "ADASUM")]
    small = [one for one in reductions if one.bytes < _SMALL_BATCH]
    share = sum(one.microseconds for one in small) / analysis.window
    if len(small) < 100 or share < _NOTICEABLE:
        return None
    mean = sum(one.bytes for one in small) // len(small)
    tensors = sum(len(one.names) for one in small) / len(small)
    return Finding(
        share,
        f"{len(small)} of {len(reductions)} allreduces moved less than 64 KiB each ({bytes_text(mean)} and "
        f"{tensors:.1f} tensors on average), which took {percent(share)} of the time.",
        "Small tensors cost a round trip each: submit them together (grouped_allreduce, "
        "DistributedOptimizer with num_groups), or let more of them gather: a larger "
        "--fusion-threshold-mb, or a --cycle-time-ms above 0.",
    )


def _one_tensor(analysis: Analysis) -> Optional[Finding]:
    if len(analysis.tensors) < 4:
        return None
    moving = sum(row.moving for row in analysis.tensors)
    worst = max(analysis.tensors, key=lambda row: row.moving)
    share = worst.moving / analysis.window
    if share < _NOTICEABLE or worst.moving < 0.5 * moving:
        return None
    return Finding(
        share,
        f"{worst.name} alone ({bytes_text(worst.bytes)}, {worst.count} times) took "
        f"{percent(worst.moving / moving)} of the communication.",
        "If it is an embedding, sparse gradients send only the rows that were used "
        "(sparse_as_dense=False); if it need not be reduced in every step, leave it out of the steps "
        "between.",
    )


def _slower_than_checked(analysis: Analysis) -> Optional[Finding]:
    slowdown, measured = analysis.slowdown, analysis.measured
    if slowdown is None or measured is None or slowdown < 2:
        return None
    nbytes, seconds = measured.points[-1]
    same = (
        ""
        if measured.ranks == analysis.job.size
        else f" (with {measured.ranks} ranks, not {analysis.job.size})"
    )
    return Finding(
        analysis.share("communication") * (1 - 1 / slowdown),
        f"Allreduces took {slowdown:.1f} times as long as horovodrun --check needs for the same "
        f"sizes{same}; it moved {bytes_text(nbytes)} at {rate_text(nbytes / seconds)}.",
        "Something shares the network or the cores with the job: the script's own threads "
        "(OMP_NUM_THREADS, data loader processes), other jobs on these hosts, or a network that is slower "
        "under load.",
    )


def _copies(analysis: Analysis) -> Optional[Finding]:
    copies = sum(
        time for name, time in analysis.parts.items() if "PACK" in name or "COPY" in name or "CPY" in name
    )
    moving = sum(one.microseconds for one in analysis.batches)
    share = copies / analysis.window
    if share < _NOTICEABLE or not moving or copies < 0.5 * moving:
        return None
    return Finding(
        share * 0.5,
        f"Copying into and out of buffers took {percent(copies / moving)} of the communication.",
        "Large tensors are not copied when they are contiguous and of a reducible type; see that gradients "
        "are not views or cast by compression, and that tensors of a GPU are reduced there.",
    )


_RULES: List[Callable[[Analysis], Optional[Finding]]] = [
    _slow_rank, _slow_host, _uneven, _bound_by_communication, _no_overlap, _small_batches, _one_tensor,
    _slower_than_checked, _copies,
]  # fmt: skip


def _all_is_well(analysis: Analysis) -> Finding:
    return Finding(
        0.0,
        f"Nothing stands out: ranks computed {percent(analysis.share('compute'))} of the time, waited "
        f"{percent(analysis.share('wait'))} and communicated {percent(analysis.share('communication'))}.",
        "To make the job faster, make the script itself faster: profile one rank.",
    )
