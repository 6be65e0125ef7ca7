# SPDX-License-Identifier: Apache-2.0
"""Hands the shared memory of a host to its ranks.

The host's first rank creates an unnamed memory file and one doorbell (eventfd) per rank, and passes the
descriptors over an abstract Unix socket: no file appears in /dev/shm or /tmp, so nothing can be left behind.
The socket's name follows from the job's secret, and both ends still prove the secret on it.
"""

from __future__ import annotations

import array
import hmac
import os
import socket
import time
from typing import Callable, List, NamedTuple

from horovod.common import _native
from horovod.rendezvous.dialling import dial
from horovod.rendezvous.errors import AuthenticationError, OutOfDescriptors
from horovod.rendezvous.fork import guard
from horovod.rendezvous.links import CHECK_SECONDS, PURPOSE, LinkAcceptor, Tag, announce
from horovod.rendezvous.network import LISTEN_BACKLOG

LOCAL_LINK = 100  # a tag kind of our own, beside the engine's
_FDS_PER_MESSAGE = 200  # Linux allows 253
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000)


class SharedMemory(NamedTuple):
    """Descriptors for hvd_world; the engine owns them once started."""

    shm_fd: int
    doorbells: List[int]

    def close(self) -> None:
        """For a start that failed before the engine took them."""
        for fd in (self.shm_fd, *self.doorbells):
            os.close(fd)


class Host(NamedTuple):
    """The ranks of this host in one generation of the world, as seen by one of them."""

    secret: bytes
    generation: int
    name: str  # distinguishes this start of this job on this host from all others
    rank: int
    ranks: List[int]

    @property
    def address(self) -> bytes:
        """Where its first rank hands out the memory."""
        digest = hmac.digest(self.secret, f"shared memory {self.generation} {self.name}".encode(), "sha256")
        return b"\0horovod-" + digest.hex()[:40].encode()

    def tag(self, rank: int) -> Tag:
        """What a rank announces to the first."""
        return Tag(LOCAL_LINK, 0, 0, rank, self.ranks[0], self.generation)


def share(host: Host, deadline: float, check: Callable[[], None]) -> SharedMemory:
    """Creates (first rank) or receives (others) the shared memory of this host.

    Args:
        check: called now and then while waiting; raises when the job has failed.
    """
    if host.rank == host.ranks[0]:
        return _give(host, deadline, check)
    return _receive(host, deadline, check)


def _give(host: Host, deadline: float, check: Callable[[], None]) -> SharedMemory:
    listener = guard(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    listener.bind(host.address)
    listener.listen(LISTEN_BACKLOG)
    acceptor = LinkAcceptor(listener, host.secret, host.generation, map(host.tag, host.ranks[1:]))
    made: List[int] = []
    try:
        lib = _native.lib()
        made.append(_created(lib.hvd_shm_create(len(host.ranks)), "the host's shared memory"))
        for _ in host.ranks:
            made.append(_created(lib.hvd_doorbell_create(), "a doorbell"))
        while not acceptor.wait(CHECK_SECONDS):
            check()
            if time.monotonic() > deadline:
                late = ", ".join(str(tag.from_rank) for tag in acceptor.missing())
                raise TimeoutError(f"ranks {late} of this host did not fetch the shared memory in time")
        for link in acceptor.take().values():
            with link.sock:
                _send_fds(link.sock, made)
        memory, made = SharedMemory(made[0], made[1:]), []
        return memory
    finally:
        for fd in made:
            os.close(fd)
        acceptor.close()


def _created(fd: int, what: str) -> int:
    if fd < 0:
        raise RuntimeError(f"cannot create {what}: {_native.last_error()}")
    return fd


def _receive(host: Host, deadline: float, check: Callable[[], None]) -> SharedMemory:
    try:
        sock, key = dial(host.address, host.secret, PURPOSE, deadline, waits=True, check=check)
        with announce(sock, key, host.tag(host.rank)).sock:
            fds = _receive_fds(sock, len(host.ranks) + 1, deadline, check)
        return SharedMemory(fds[0], fds[1:])
    except (AuthenticationError, OSError) as error:
        check()  # if the first rank failed, its own reason is better than ours
        raise TimeoutError(
            f"rank {host.ranks[0]} of this host did not hand out the shared memory ({error})"
        ) from error


def _send_fds(sock: socket.socket, fds: List[int]) -> None:
    for start in range(0, len(fds), _FDS_PER_MESSAGE):
        rights = array.array("i", fds[start : start + _FDS_PER_MESSAGE])
        sock.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def _receive_fds(sock: socket.socket, count: int, deadline: float, check: Callable[[], None]) -> List[int]:
    fds: List[int] = []
    room = socket.CMSG_SPACE(_FDS_PER_MESSAGE * array.array("i").itemsize)
    try:
        while len(fds) < count:
            sock.settimeout(CHECK_SECONDS)
            try:
                data, ancillary, flags, _ = sock.recvmsg(1, room, _CLOEXEC)
            except socket.timeout:
                check()
                if time.monotonic() > deadline:
                    raise
                continue
            if not data:
                raise ConnectionResetError("the host's first rank hung up")
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    rights = array.array("i")
                    rights.frombytes(payload[: len(payload) - len(payload) % rights.itemsize])
                    fds.extend(rights)
            if flags & socket.MSG_CTRUNC:  # the kernel had no room in our table for all of them
                raise OutOfDescriptors()
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    return fds
