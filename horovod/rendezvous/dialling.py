# SPDX-License-Identifier: Apache-2.0
"""Connects to a service of this job and proves the secret there; the other end is acceptor.py."""

from __future__ import annotations

import socket
import time
from typing import Any, Callable, List, Tuple, Union

from horovod.rendezvous import auth
from horovod.rendezvous.errors import AuthenticationError, HungUp, OutOfDescriptors, is_exhaustion
from horovod.rendezvous.fork import guard
from horovod.rendezvous.network import tune

# One attempt to reach a host that does not answer; in between, the caller hears what happened meanwhile.
_ATTEMPT_SECONDS = 3.0
# A peer that hangs up after it saw our proof either holds another secret, or was crowded at that very moment.
_SECOND_CHANCES = 3

# Silence may end; a reset while connecting is what a crowded peer does to its oldest connection.
_PASSING = (socket.timeout, ConnectionResetError, ConnectionAbortedError)

Address = Union[Tuple[str, int], bytes]  # host and port, or the name of a Unix socket


def dial(
    address: Address,
    secret: bytes,
    purpose: bytes,
    deadline: float,
    *,
    waits: bool,
    check: Callable[[], None] = lambda: None,
) -> Tuple[socket.socket, bytes]:
    """A connected, proven, blocking socket and its session key.

    A service that strangers crowd drops its oldest connection, which may be ours: then this dials again.

    Args:
        deadline: on the clock of time.monotonic.
        waits: nobody may be listening yet, so keep trying; else that is an error at once.
        check: called between attempts; raises when there is no point in going on.

    Raises:
        OutOfDescriptors: this process may open no more sockets.
        AuthenticationError: somebody else answers there, or with another secret.
        OSError: nobody answers.
    """
    pause, chances = 0.002, _SECOND_CHANCES
    while True:
        try:
            sock = _connected(address, deadline)
            try:
                key = auth.connect(sock, secret, purpose, max(deadline - time.monotonic(), 1.0))
                sock.settimeout(None)
                return sock, key
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            if is_exhaustion(error):
                raise OutOfDescriptors() from error
            if isinstance(error, HungUp):
                chances -= 0 if error.early else 1
                again = chances >= 0
            elif isinstance(error, AuthenticationError):
                again = False
            else:
                again = waits or isinstance(error, _PASSING)
            if not again or time.monotonic() + pause >= deadline:
                raise
        check()
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def _connected(address: Address, deadline: float) -> socket.socket:
    """A connection to the first of the name's addresses that answers."""
    failure: OSError = OSError(f"no address is known for {address!r}")
    for family, target in _targets(address):
        sock = guard(socket.socket(family, socket.SOCK_STREAM))
        try:
            sock.settimeout(min(max(deadline - time.monotonic(), 0.1), _ATTEMPT_SECONDS))
            sock.connect(target)
            tune(sock)
            return sock
        except OSError as error:
            sock.close()
            failure = error
    raise failure


def _targets(address: Address) -> List[Tuple[int, Any]]:
    if isinstance(address, bytes):
        return [(socket.AF_UNIX, address)]
    return [(info[0], info[4]) for info in socket.getaddrinfo(*address, type=socket.SOCK_STREAM)]
