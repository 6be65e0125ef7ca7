# SPDX-License-Identifier: Apache-2.0
"""What a rank can ask about the Spark task it runs in."""

from __future__ import annotations

import json
import os
from typing import List

# Set for each rank by the task that starts it, e.g. '["0", "3"]'.
DEVICES = "HOROVOD_SPARK_DEVICES"


def get_available_devices() -> List[str]:
    """Addresses of the GPUs that Spark has given to this rank's task; empty without GPU scheduling."""
    return [str(address) for address in json.loads(os.environ.get(DEVICES, "[]"))]
