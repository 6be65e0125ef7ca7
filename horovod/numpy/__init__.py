# SPDX-License-Identifier: Apache-2.0
"""Collectives on NumPy arrays, and on lists, numbers and anything with the buffer protocol.

import horovod.numpy as hvd
hvd.init()
print(hvd.allreduce([1.0, 2.0]))
"""

from horovod.common import elastic, lifecycle
from horovod.common.barriers import join
from horovod.common.handles import poll, synchronize
from horovod.common.lifecycle import *  # noqa: F403
from horovod.common.objects import allgather_object, broadcast_object
from horovod.numpy import collectives
from horovod.numpy.collectives import *  # noqa: F403

__all__ = ["allgather_object", "broadcast_object", "elastic", "join", "poll", "synchronize"]
__all__ += lifecycle.__all__
__all__ += collectives.__all__
