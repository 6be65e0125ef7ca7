# SPDX-License-Identifier: Apache-2.0
"""What can go wrong while ranks find each other.

ConnectionError
 ├─ AuthenticationError     the peer did not prove the job's secret
 │   └─ HungUp              ... because it hung up before it could: dropped, dead, or it holds another secret
 └─ WireError               a frame that this connection's key did not sign, or that makes no sense
RuntimeError
 ├─ CannotListen            this process cannot open a port where it was told to
 ├─ OutOfDescriptors        this process may open no more files: its own fault, never a peer's
 └─ StoreError              the job failed while its ranks were finding each other
     ├─ StoreRefused        somebody else answers where the store should be, or with another secret
     ├─ StoreTimeout        nobody set the value in time, or nobody answers there
     ├─ Superseded          this generation was given up for a newer one: ask for a place in that one
     └─ Dismissed           the job has no place for this worker any more
"""

from __future__ import annotations

import errno
import resource
from typing import Optional


class AuthenticationError(ConnectionError):
    """The peer did not prove the job's secret (or is not part of this software at all)."""


class HungUp(AuthenticationError):
    """The peer closed the connection during the handshake.

    Attributes:
        early: this side had not proved itself yet, so the peer cannot have judged it: trying again may help.
    """

    def __init__(self, early: bool) -> None:
        self.early = early
        super().__init__(
            "the peer closed the connection during authentication "
            "(another job's secret, or another program listens there)"
        )


class WireError(ConnectionError):
    """A frame that this connection's key did not sign, or that makes no sense."""


class CannotListen(RuntimeError):
    """An address is not this machine's, or its port is taken.

    Attributes:
        errno: what the system said, e.g. errno.EADDRINUSE.
    """

    def __init__(self, text: str, code: Optional[int]) -> None:
        super().__init__(text)
        self.errno = code


class OutOfDescriptors(RuntimeError):
    """This process has as many open files as it may have."""

    def __init__(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        super().__init__(
            f"this process has no descriptor left for a connection: its limit is {soft} (at most {hard}); "
            f"raise it where the job is started, e.g. ulimit -n {max(4096, 2 * soft)}"
        )


class StoreError(RuntimeError):
    """The job failed while its ranks were finding each other; the text says who and why."""


class StoreRefused(StoreError):
    """The job's store is not what answers at its address."""


class StoreTimeout(StoreError):
    """Nobody set the value in time; the text says which ranks are missing."""


class Superseded(StoreError):
    """The world this rank was joining was given up for a newer generation."""


class Dismissed(StoreError):
    """The job goes on without this worker."""


def is_exhaustion(error: OSError) -> bool:
    """Whether the operating system refuses this process (or the machine) another descriptor."""
    return error.errno in (errno.EMFILE, errno.ENFILE)
