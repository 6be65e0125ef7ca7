# SPDX-License-Identifier: Apache-2.0
"""Who may connect: both ends of a socket prove that they hold the job's secret.

Nothing a peer sends is parsed before it has proved the secret: each side reads exactly 40 bytes of hello
and 32 bytes of proof, compares in constant time, and hangs up on anything else.

    client                                  server
      hello  = magic + client nonce   --->
                                      <---  hello = magic + server nonce
      proof  = HMAC(secret, "client") --->                     (verified before the server proves itself,
                                      <---  HMAC(secret, "server")   so a stranger learns nothing from it)

The role word in each proof stops reflection, the two nonces stop replay, and the purpose ("store", "link")
stops a connection meant for one service from being passed on to another. Both ends then share a session key,
known to them alone, under which what they say afterwards is signed: the store's frames, the announcement of a
link, and the engine's messages on it.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import time
from typing import Callable, Generator

from horovod.rendezvous.errors import AuthenticationError, HungUp

MAGIC = b"HVDAUTH2"
NONCE_BYTES = 32
HELLO_BYTES = len(MAGIC) + NONCE_BYTES
PROOF_BYTES = 32
SECRET_BYTES = 32
# How long a peer may take to prove itself; a port scanner holds a slot no longer than this.
HANDSHAKE_SECONDS = 20.0


def make_secret() -> bytes:
    """A fresh secret for one job."""
    return secrets.token_bytes(SECRET_BYTES)


def hello() -> bytes:
    """The first 40 bytes either side sends."""
    return MAGIC + os.urandom(NONCE_BYTES)


def check_hello(data: bytes) -> None:
    """Refuses a peer that does not speak this protocol."""
    if len(data) != HELLO_BYTES or not data.startswith(MAGIC):
        raise AuthenticationError("the peer does not speak Horovod's protocol")


def client_proof(secret: bytes, client_hello: bytes, server_hello: bytes, purpose: bytes) -> bytes:
    """What only a client that holds the secret can send."""
    return hmac.digest(secret, b"client" + client_hello + server_hello + purpose, "sha256")


def server_proof(secret: bytes, client_hello: bytes, server_hello: bytes, purpose: bytes) -> bytes:
    """What only a server that holds the secret can send."""
    return hmac.digest(secret, b"server" + client_hello + server_hello + purpose, "sha256")


def session_key(secret: bytes, client_hello: bytes, server_hello: bytes, purpose: bytes) -> bytes:
    """A key known to the two ends of this connection only."""
    return hmac.digest(secret, b"session" + client_hello + server_hello + purpose, "sha256")


def derived_key(key: bytes, use: bytes) -> bytes:
    """A key for one use only, made from a secret or a session key."""
    return hmac.digest(key, b"derive " + use, "sha256")


def check_proof(expected: bytes, got: bytes) -> None:
    """Compares in constant time."""
    if not hmac.compare_digest(expected, got):
        raise AuthenticationError(
            "the peer does not hold this job's secret; it belongs to another job, "
            "or _HOROVOD_SECRET_KEY differs between the processes"
        )


def accept(secret: bytes, purpose: bytes, send: Callable[[bytes], None]) -> Generator[int, bytes, bytes]:
    """The server's side of the handshake, the only one there is. Returns the session key.

    It does no waiting of its own: it yields how many bytes it wants next and is sent exactly those. So one
    thread (horovod.rendezvous.acceptor) leads any number of strangers through it at a time.
    """
    theirs = yield HELLO_BYTES
    check_hello(theirs)
    mine = hello()
    send(mine)
    proof = yield PROOF_BYTES
    check_proof(client_proof(secret, theirs, mine, purpose), proof)
    send(server_proof(secret, theirs, mine, purpose))
    return session_key(secret, theirs, mine, purpose)


def connect(sock: socket.socket, secret: bytes, purpose: bytes, timeout: float = HANDSHAKE_SECONDS) -> bytes:
    """The client's side of the handshake, on a connected blocking socket. Returns the session key."""
    deadline = time.monotonic() + timeout
    before = sock.gettimeout()
    sock.settimeout(timeout)
    mine = hello()
    theirs = _exchange(sock, mine, HELLO_BYTES, deadline, early=True)
    check_hello(theirs)
    proof = client_proof(secret, mine, theirs, purpose)
    answer = _exchange(sock, proof, PROOF_BYTES, deadline, early=False)
    check_proof(server_proof(secret, mine, theirs, purpose), answer)
    sock.settimeout(before)
    return session_key(secret, mine, theirs, purpose)


def _exchange(sock: socket.socket, data: bytes, count: int, deadline: float, early: bool) -> bytes:
    """Sends, and reads an answer of exactly that many bytes."""
    answer = b""
    try:
        sock.sendall(data)
        while len(answer) < count:
            sock.settimeout(max(deadline - time.monotonic(), 1e-3))
            part = sock.recv(count - len(answer))
            if not part:
                raise HungUp(early)
            answer += part
    except socket.timeout as error:
        raise AuthenticationError("the peer did not prove the job's secret in time") from error
    except (ConnectionResetError, BrokenPipeError) as error:
        raise HungUp(early) from error
    return answer
