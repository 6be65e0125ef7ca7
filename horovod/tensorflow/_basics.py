# SPDX-License-Identifier: Apache-2.0
"""The names every TensorFlow and Keras front end shares with the other frameworks."""

from __future__ import annotations

from horovod.common.basics import basics as _basics
from horovod.common.constants import Adasum, Average, Max, Min, Product, Sum  # noqa: F401
from horovod.common.process_sets import (  # noqa: F401
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built

LIFECYCLE = ["init", "shutdown", "is_initialized", "start_timeline", "stop_timeline"]
TOPOLOGY = ["size", "local_size", "cross_size", "rank", "local_rank", "cross_rank"]
CAPABILITIES = [
    "mpi_threads_supported",
    "mpi_enabled",
    "mpi_built",
    "gloo_enabled",
    "gloo_built",
    "nccl_built",
    "ddl_built",
    "ccl_built",
    "cuda_built",
    "rocm_built",
]
PROCESS_SETS = ["ProcessSet", "global_process_set", "add_process_set", "remove_process_set"]
REDUCTIONS = ["Average", "Sum", "Adasum", "Min", "Max", "Product"]

__all__ = [*LIFECYCLE, *TOPOLOGY, *CAPABILITIES, *PROCESS_SETS, *REDUCTIONS, "is_homogeneous"]
