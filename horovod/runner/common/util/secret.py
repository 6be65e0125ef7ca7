# SPDX-License-Identifier: Apache-2.0
"""The job's secret, under its old path."""

from __future__ import annotations

import hmac

from horovod.rendezvous.auth import make_secret

__all__ = ["HOROVOD_SECRET_KEY", "check_digest", "compute_digest", "make_secret_key"]

HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"


def make_secret_key() -> bytes:
    """32 random bytes."""
    return make_secret()


def compute_digest(key: bytes, data: bytes) -> bytes:
    """HMAC-SHA-256."""
    return hmac.digest(key, data, "sha256")


def check_digest(key: bytes, data: bytes, digest: bytes) -> bool:
    """Whether the digest is that of the data, in constant time."""
    return hmac.compare_digest(compute_digest(key, data), digest)
