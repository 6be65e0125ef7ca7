# SPDX-License-Identifier: Apache-2.0
"""What the events of a job mean: who is awaited, when it is over, and whose fault it was.

Pure: events and the time come in, a verdict comes out. Nothing here waits, starts or asks anything, so that
tests can tell it any story.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

from horovod.rendezvous.generations import UNKNOWN
from horovod.rendezvous.identity import ranks_text
from horovod.runner.host_runner import Event, HostLost, HostReady, HostUnreachable, WorkerExited
from horovod.runner.placement import SlotInfo

# After a failure, how long to collect others before naming the one to blame; and how long if only echoes are
# known: the report of the one who caused them is still under way.
BLAME_SECONDS, ECHO_SECONDS = 0.25, 2.0
# Errors that only say "somebody else failed".
_ECHOES = ("HorovodInternalError", "StoreError", "disappeared while the job was starting")
# A host that has been silent for this part of the network's timeout may explain the echoes on others.
_SUSPICIOUS = 1 / 3
_FIRST_WORD_SECONDS, _NEXT_WORD_SECONDS = 2.0, 5.0


@dataclass(frozen=True)
class Interrupted:
    """The launcher was asked to stop by a signal."""

    number: int


@dataclass
class WorkerFailure:
    """One worker that ended badly.

    Attributes:
        rank: UNKNOWN if it never had one.
        worker: by which the store of an elastic job knows it.
    """

    rank: int
    host: str
    code: int
    tail: List[str] = field(default_factory=list)
    worker: str = ""

    def is_echo(self) -> bool:
        """Whether its last lines only say that somebody else failed (lines of code do not count)."""
        said = [line for line in self.tail if not line.startswith("    ")]
        return any(word in line for line in said for word in _ECHOES)


def culprit(failures: Sequence[WorkerFailure]) -> WorkerFailure:
    """The one to blame among workers that failed, given in the order of their ends: the first no echo."""
    return next((failure for failure in failures if not failure.is_echo()), failures[0])


class JobFailed(RuntimeError):
    """One or more workers ended with an error; `first` is the one to look at."""

    def __init__(self, first: WorkerFailure) -> None:
        self.first = first
        last = "".join(f"\n    {line}" for line in first.tail)
        name = first.worker if first.rank == UNKNOWN else first.rank
        super().__init__(
            "Horovod detected that one or more processes exited with non-zero status, thus causing the job "
            "to be terminated. The first process to do so was:\n"
            f"Process name: {name}\nExit code: {exit_text(first.code)}\n"
            f"Host: {first.host}\n"
            + (f"Last lines of its output:{last}\n" if last else "It printed nothing.\n")
        )


class HostError(RuntimeError):
    """A host could not be reached or was lost."""


class JobInterrupted(RuntimeError):
    """The launcher was asked to stop (Ctrl-C or a signal)."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"stopped by {signal.Signals(number).name}; all workers were ended")


class Supervisor:
    """Follows a static job: every worker must end with 0, every host must stay.

    Args:
        slots: the ranks; a worker's number is its rank.
        now: the time, on any clock that the other calls use too.
        start_timeout: how long hosts may take to become ready.
        network_timeout: how long a host may be silent.
        tail: the last lines that a rank printed.

    Attributes:
        over: whether the job has ended, or must be ended.
        error: what ended it; None while it runs and after success.
    """

    def __init__(
        self,
        slots: Sequence[SlotInfo],
        now: float,
        start_timeout: float,
        network_timeout: float,
        tail: Callable[[int], List[str]],
    ) -> None:
        self.over = not slots
        self.error: Optional[RuntimeError] = None
        self.failures: List[WorkerFailure] = []
        self._hosts = {slot.rank: slot.hostname for slot in slots}
        self._left = set(self._hosts)
        self._awaited: Set[str] = set(self._hosts.values())
        self._number_of_hosts = len(self._awaited)
        self._start_timeout, self._network_timeout = start_timeout, network_timeout
        self._start_deadline = now + start_timeout
        self._next_word = now + _FIRST_WORD_SECONDS
        self._blame_at: Optional[float] = None
        self._silences: Dict[str, float] = {}
        self._tail = tail
        self._words: List[Tuple[int, str]] = []

    def handle(self, event: Union[Event, Interrupted], now: float) -> None:
        """Takes what has happened."""
        if self.over:
            return
        if isinstance(event, WorkerExited):
            self._exited(event, now)
        elif isinstance(event, HostReady):
            self._awaited.discard(event.host)
            if event.note:
                self._words.append((1, f"host {event.host} is ready ({event.note})"))
        elif isinstance(event, HostLost):
            self._lost(event.host, event.why)
        elif isinstance(event, HostUnreachable):
            self._finish(HostError(f"Could not start workers on host {event.host}: {event.why}"))
        elif isinstance(event, Interrupted):
            self._finish(JobInterrupted(event.number))

    def silences(self, seconds: Mapping[str, float]) -> None:
        """Takes for how long nothing has been heard of each host."""
        self._silences = dict(seconds)
        if not self.over and any(one >= self._network_timeout for one in seconds.values()):
            self._blame_silence(self._network_timeout / 2)

    def tick(self, now: float) -> None:
        """Takes the time; needed at wake_at() at the latest."""
        if self.over:
            return
        if self._blame_at is not None and now >= self._blame_at:
            self._blame()
        elif self._awaited and self._blame_at is None and now >= self._start_deadline:
            self._finish(
                HostError(
                    f"Timed out waiting for {self._awaited_text()} to start workers over ssh. Please check "
                    "connectivity between servers. You may need to increase the --start-timeout parameter "
                    f"if you have too many servers. Timeout after {self._start_timeout:g} seconds."
                )
            )
        elif self._awaited and now >= self._next_word:
            self._next_word = now + _NEXT_WORD_SECONDS
            reached = self._number_of_hosts - len(self._awaited)
            text = f"{reached} of {self._number_of_hosts} hosts reached; waiting for {self._awaited_text()}"
            self._words.append((0, text))

    def wake_at(self) -> Optional[float]:
        """When tick() has something to do; None: only events can change anything."""
        if self._blame_at is not None:
            return self._blame_at
        return min(self._next_word, self._start_deadline) if self._awaited else None

    def words(self) -> List[Tuple[int, str]]:
        """What to tell the user since the last call: (least verbosity, text)."""
        words, self._words = self._words, []
        return words

    # ------------------------------------------------------------------------------------- private

    def _exited(self, event: WorkerExited, now: float) -> None:
        self._left.discard(event.worker)
        if event.code != 0:
            tail = self._tail(event.worker)
            self.failures.append(WorkerFailure(event.worker, event.host, event.code, tail))
            wait = ECHO_SECONDS if all(one.is_echo() for one in self.failures) else BLAME_SECONDS
            self._blame_at = now + wait if self._blame_at is None else min(self._blame_at, now + wait)
        if not self._left:
            if self.failures:
                self._blame()
            else:
                self._finish(None)

    def _lost(self, host: str, why: str) -> None:
        lost = self._ranks_of([host])
        if lost and all(failure.is_echo() for failure in self.failures):
            self._finish(HostError(f"Lost host {host} ({ranks_text(lost)}): {why}"))

    def _blame(self) -> None:
        first = culprit(self.failures)
        if not first.is_echo() or not self._blame_silence(self._network_timeout * _SUSPICIOUS):
            self._finish(JobFailed(first))

    def _blame_silence(self, limit: float) -> bool:
        """Ends the job because of hosts that have been silent for so long, if there are any."""
        silent = [host for host, seconds in self._silences.items() if seconds >= limit]
        lost = self._ranks_of(silent)
        if not lost:
            return False
        hosts = ("host " if len(silent) == 1 else "hosts ") + ", ".join(silent)
        longest = max(self._silences[host] for host in silent)
        self._finish(
            HostError(
                f"Lost {hosts} ({ranks_text(lost)}): no word from {hosts} for {longest:.0f} s: "
                "its network was cut or it went down. Outages shorter than "
                f"--network-timeout-seconds {self._network_timeout:g} are endured"
            )
        )
        return True

    def _ranks_of(self, hosts: Sequence[str]) -> List[int]:
        return [rank for rank in sorted(self._left) if self._hosts[rank] in hosts]

    def _awaited_text(self) -> str:
        return ", ".join(sorted(self._awaited))

    def _finish(self, error: Optional[RuntimeError]) -> None:
        self.over, self.error = True, error


def exit_text(code: int) -> str:
    """An exit code as people read it, e.g. "137 (ended by SIGKILL)"."""
    if code > 128:
        try:
            return f"{code} (ended by {signal.Signals(code - 128).name})"
        except ValueError:
            pass
    return str(code)


def announcement(failure: WorkerFailure) -> str:
    """What the other ranks are told about one that ended before it met them."""
    last = f"; its last line: {failure.tail[-1]}" if failure.tail else "; it printed nothing"
    return (
        f"rank {failure.rank} on {failure.host} ended with exit code {exit_text(failure.code)} before "
        f"it joined the job{last}"
    )
