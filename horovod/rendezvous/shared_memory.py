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
from typing import Callable, List, NamedTuple, Set

from horovod.common import _native
from horovod.rendezvous.auth import AuthenticationError
from horovod.rendezvous.links import LISTEN_BACKLOG, Acceptor, Tag, announce

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


def host_key(name: str) -> str:
    """Equal for the processes that can share memory and reach each other's abstract sockets.

    The host's name as the launcher gives it (a test may run several "hosts" on one machine), the kernel's
    boot id (two machines may carry one name) and the network namespace (containers).
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        namespace = str(os.stat("/proc/self/ns/net").st_ino)
    except OSError:
        boot, namespace = socket.gethostname(), ""
    return f"{name}|{boot}|{namespace}"


def share(
    secret: bytes, scope: str, rank: int, local_ranks: List[int], deadline: float, check: Callable[[], None]
) -> SharedMemory:
    """Creates (first rank) or receives (others) the shared memory of this host.

    Args:
        scope: distinguishes this start of this job on this host from all others.
        check: called now and then while waiting; raises when the job has failed.
    """
    name = (
        b"\0horovod-" + hmac.digest(secret, b"shared memory " + scope.encode(), "sha256").hex()[:40].encode()
    )
    if rank == local_ranks[0]:
        return _give(secret, name, local_ranks, deadline, check)
    return _receive(secret, name, rank, local_ranks, deadline, check)


def _created(fd: int, what: str) -> int:
    if fd < 0:
        raise RuntimeError(f"cannot create {what}: {_native.last_error()}")
    return fd


def _give(
    secret: bytes, name: bytes, local_ranks: List[int], deadline: float, check: Callable[[], None]
) -> SharedMemory:
    lib = _native.lib()
    me, others = local_ranks[0], local_ranks[1:]
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(name)
    listener.listen(LISTEN_BACKLOG)
    expected: Set[Tag] = {_tag(other, me) for other in others}
    acceptor = Acceptor(listener, secret, expected)
    memory = None
    try:
        memory = SharedMemory(
            _created(lib.hvd_shm_create(len(local_ranks)), "the host's shared memory"),
            [_created(lib.hvd_doorbell_create(), "a doorbell") for _ in local_ranks],
        )
        while not acceptor.wait(0.2):
            check()
            if time.monotonic() > deadline:
                late = ", ".join(str(tag.from_rank) for tag in acceptor.missing())
                raise TimeoutError(f"ranks {late} of this host did not fetch the shared memory in time")
        for sock in acceptor.take().values():
            with sock:
                _send_fds(sock, [memory.shm_fd, *memory.doorbells])
        return memory
    except BaseException:
        if memory is not None:
            memory.close()
        raise
    finally:
        acceptor.close()


def _receive(
    secret: bytes, name: bytes, rank: int, local_ranks: List[int], deadline: float, check: Callable[[], None]
) -> SharedMemory:
    pause = 0.001
    last_check = time.monotonic()
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(5.0)
            sock.connect(name)
            announce(sock, secret, _tag(rank, local_ranks[0]), deadline)
            fds = _receive_fds(sock, len(local_ranks) + 1, deadline)
            return SharedMemory(fds[0], fds[1:])
        except (OSError, AuthenticationError) as error:  # the first rank is not there yet, or gone
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"rank {local_ranks[0]} of this host did not hand out the shared memory in time ({error})"
                ) from error
        finally:
            sock.close()
        if time.monotonic() - last_check > 0.2:
            check()
            last_check = time.monotonic()
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _tag(from_rank: int, to_rank: int) -> Tag:
    return Tag(LOCAL_LINK, 0, 0, from_rank, to_rank)


def _send_fds(sock: socket.socket, fds: List[int]) -> None:
    for start in range(0, len(fds), _FDS_PER_MESSAGE):
        rights = array.array("i", fds[start : start + _FDS_PER_MESSAGE])
        sock.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def _receive_fds(sock: socket.socket, count: int, deadline: float) -> List[int]:
    fds: List[int] = []
    try:
        while len(fds) < count:
            sock.settimeout(max(deadline - time.monotonic(), 0.1))
            room = socket.CMSG_LEN(_FDS_PER_MESSAGE * array.array("i").itemsize)
            data, ancillary, _, _ = sock.recvmsg(1, room, _CLOEXEC)
            if not data:
                raise ConnectionResetError("the host's first rank hung up")
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    rights = array.array("i")
                    rights.frombytes(payload[: len(payload) - len(payload) % rights.itemsize])
                    fds.extend(rights)
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    return fds
