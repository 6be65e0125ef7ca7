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
stops a connection meant for one service from being passed on to another. `session_key` gives both ends a key
for this one connection, for protocols that also sign what they send afterwards.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import time

MAGIC = b"HVDAUTH1"
NONCE_BYTES = 32
HELLO_BYTES = len(MAGIC) + NONCE_BYTES
PROOF_BYTES = 32
SECRET_BYTES = 32
# How long a peer may take to prove itself; a port scanner holds a slot no longer than this.
HANDSHAKE_SECONDS = 20.0


class AuthenticationError(ConnectionError):
    """The peer did not prove the job's secret (or is not part of this software at all)."""


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


def client_proof(secret: bytes, client_hello: bytes, server_hello: bytes, purpose: bytes = b"") -> bytes:
    """What only a client that holds the secret can send."""
    return hmac.digest(secret, b"client" + client_hello + server_hello + purpose, "sha256")


def server_proof(secret: bytes, client_hello: bytes, server_hello: bytes, purpose: bytes = b"") -> bytes:
    """What only a server that holds the secret can send."""
    return hmac.digest(secret, b"server" + client_hello + server_hello + purpose, "sha256")


def session_key(secret: bytes, client_hello: bytes, server_hello: bytes) -> bytes:
    """A key known to the two ends of this connection only."""
    return hmac.digest(secret, b"session" + client_hello + server_hello, "sha256")


def check_proof(expected: bytes, got: bytes) -> None:
    """Compares in constant time."""
    if not hmac.compare_digest(expected, got):
        raise AuthenticationError(
            "the peer does not hold this job's secret; it belongs to another job, "
            "or _HOROVOD_SECRET_KEY differs between the processes"
        )


def connect(
    sock: socket.socket, secret: bytes, timeout: float = HANDSHAKE_SECONDS, purpose: bytes = b""
) -> bytes:
    """Client side of the handshake on a connected blocking socket. Returns the session key."""
    deadline = time.monotonic() + timeout
    before = sock.gettimeout()
    mine = hello()
    sock.settimeout(timeout)
    sock.sendall(mine)
    theirs = _read_exactly(sock, HELLO_BYTES, deadline)
    check_hello(theirs)
    sock.sendall(client_proof(secret, mine, theirs, purpose))
    check_proof(server_proof(secret, mine, theirs, purpose), _read_exactly(sock, PROOF_BYTES, deadline))
    sock.settimeout(before)
    return session_key(secret, mine, theirs)


def accept(
    sock: socket.socket, secret: bytes, timeout: float = HANDSHAKE_SECONDS, purpose: bytes = b""
) -> bytes:
    """Server side of the handshake on an accepted blocking socket. Returns the session key."""
    deadline = time.monotonic() + timeout
    before = sock.gettimeout()
    mine = hello()
    theirs = _read_exactly(sock, HELLO_BYTES, deadline)
    check_hello(theirs)
    sock.settimeout(timeout)
    sock.sendall(mine)
    check_proof(client_proof(secret, theirs, mine, purpose), _read_exactly(sock, PROOF_BYTES, deadline))
    sock.sendall(server_proof(secret, theirs, mine, purpose))
    sock.settimeout(before)
    return session_key(secret, theirs, mine)


def _read_exactly(sock: socket.socket, count: int, deadline: float) -> bytes:
    data = b""
    while len(data) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise AuthenticationError("the peer did not prove the job's secret in time")
        sock.settimeout(left)
        try:
            part = sock.recv(count - len(data))
        except socket.timeout as error:
            raise AuthenticationError("the peer did not prove the job's secret in time") from error
        if not part:
            raise AuthenticationError(
                "the peer closed the connection during authentication "
                "(another job's secret, or another program listens there)"
            )
        data += part
    return data
