# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of a job put down what they did last, when it fails or stalls."""

from __future__ import annotations

import hashlib
import os
import tempfile


def path(folder: str, secret: bytes) -> str:
    """The file of a job: the same for all its ranks on a host, and for nobody else.

    Args:
        folder: HOROVOD_FLIGHT_RECORDER: "" for the folder for temporary files, "off" for no file at all.
        secret: the job's; b"" for a process alone.

    Returns:
        E.g. "/tmp/horovod-flight-3f9a01bc2d4e.jsonl", or "".
    """
    if folder.lower() == "off":
        return ""
    job = hashlib.sha256(b"flight recorder" + secret).hexdigest()[:12] if secret else f"pid{os.getpid()}"
    return os.path.join(os.path.abspath(folder or tempfile.gettempdir()), f"horovod-flight-{job}.jsonl")
