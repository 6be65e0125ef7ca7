# SPDX-License-Identifier: Apache-2.0
"""Which GPU of its host a rank uses."""

from __future__ import annotations

import os

# By default the GPU that Spark has given to the task; "1": number local_rank() instead.
USE_LOCAL_RANK = "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX"


def gpu_of_rank() -> int:
    """The index of this rank's GPU."""
    from horovod.common.basics import basics
    from horovod.spark.task import get_available_devices

    if os.environ.get(USE_LOCAL_RANK, "0") == "0":
        devices = get_available_devices()
        if devices:
            return int(devices[0])
    return int(basics.local_rank())
