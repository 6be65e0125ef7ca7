# SPDX-License-Identifier: Apache-2.0
"""Running workers on a host: what every way of doing so offers, and what it reports.

    LocalHost    (local_host.py)    processes of this machine
    RemoteHost   (remote_host.py)   an agent on another one, over ssh (ssh.py) or a socket (agent_socket.py)

The methods of a host runner return at once (`terminate` and `close` aside, which are bounded in time) and may
be called from any thread. What happens is reported through two functions given to its constructor, which run
on the host runner's own threads:

    output(worker, STDOUT or STDERR, data)   what a worker printed; b"" ends the stream
    report(event)                            one of the events below

A worker is known by a number of its job's choice: its rank in a static job; elastic jobs number the processes
they start, since ranks change.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, List, Optional, Protocol, Union

STDOUT, STDERR = 1, 2

# Between asking a worker to end (SIGTERM) and ending it (SIGKILL).
GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class WorkerSpec:
    """What to start as one worker."""

    worker: int
    command: List[str]
    env: Dict[str, str]
    cwd: Optional[str] = None


@dataclass(frozen=True)
class HostReady:
    """Workers can be started there; `note` says what is worth knowing about the host."""

    host: str
    note: str = ""


@dataclass(frozen=True)
class HostUnreachable:
    """The host could not be made ready; `why` says what to do about it."""

    host: str
    why: str


@dataclass(frozen=True)
class HostLost:
    """The host was ready, and is gone with all its workers."""

    host: str
    why: str


@dataclass(frozen=True)
class WorkerExited:
    """A worker ended and all it printed was delivered; code is 128 + n for an end by signal n."""

    host: str
    worker: int
    code: int


Event = Union[HostReady, HostUnreachable, HostLost, WorkerExited]
OutputFunction = Callable[[int, int, bytes], None]
ReportFunction = Callable[[Event], None]


class HostRunner(Protocol):
    """Starts and ends workers on one host."""

    host: str

    def open(self) -> None:
        """Makes the host ready: HostReady or HostUnreachable follows."""

    def start(self, spec: WorkerSpec) -> None:
        """Starts one more worker; one that cannot be started is reported to have exited with 127."""

    def end(self, worker: int, grace: float = GRACE_SECONDS) -> None:
        """Asks a worker, with everything it started, to end; ends it after the grace period."""

    def signal(self, number: int) -> None:
        """Signals every worker, with everything it started."""

    def pause(self) -> None:
        """The caller will be stopped for a while (Ctrl-Z): its silence means nothing."""

    def silence(self) -> float:
        """For how many seconds nothing was heard of the host; 0.0 where that cannot be."""

    def terminate(self, grace: float = GRACE_SECONDS) -> None:
        """Ends all workers as `end` does, and waits for it; a little longer than the grace period at most."""

    def close(self, limit: float = 5.0) -> None:
        """Delivers the rest of the output, for as long as the limit allows, and lets go of the host."""


def on_all(runners: Iterable[HostRunner], act: Callable[[HostRunner], None]) -> None:
    """Does something that takes a while on all hosts at a time."""
    actors = [threading.Thread(target=act, args=(one,), daemon=True) for one in runners]
    for actor in actors:
        actor.start()
    for actor in actors:
        actor.join()
