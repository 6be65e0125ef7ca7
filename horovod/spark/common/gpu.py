# SPDX-License-Identifier: Apache-2.0
"""Which GPU of its host a rank uses."""

from __future__ import annotations

import os

from horovod.spark.task import get_available_devices

# By default the GPU that Spark has given to the task; "1": number local_rank() instead.
USE_LOCAL_RANK = "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX"


def gpu_of_rank() -> int:
    """The index of this rank's GPU."""
    devices = get_available_devices()
    if devices and os.environ.get(USE_LOCAL_RANK, "0") == "0":
        return int(devices[0])
    return int(os.environ.get("HOROVOD_LOCAL_RANK", "0"))


def show_gpu(use_gpu: bool) -> None:
    """Lets this process see its GPU only, or none; before a framework looks for them."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu_of_rank()) if use_gpu else "-1"
