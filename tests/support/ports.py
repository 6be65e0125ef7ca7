# SPDX-License-Identifier: Apache-2.0
"""Ports for services that a test starts later."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """Where nobody listens. Nobody else gets it meanwhile: the kernel hands out higher ones."""
    while True:
        port = random.SystemRandom().randrange(20000, 32768)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass  # taken
