# SPDX-License-Identifier: Apache-2.0
"""The collectives and everything around them under the module name that scripts know."""

from __future__ import annotations

import mxnet as mx

from horovod.common import barriers, lifecycle
from horovod.common.basics import basics
from horovod.common.lifecycle import *  # noqa: F403
from horovod.mxnet import collectives
from horovod.mxnet.collectives import *  # noqa: F403


def join() -> int:
    """Says that this rank has no more data, and waits until all ranks say so.

    Until then the other ranks' allreduces go on; this rank counts as zeros in them.

    Returns:
        The rank that joined last.
    """
    mx.nd.waitall()  # operations pushed so far are still this rank's data
    return barriers.join()


# A last update that is still running when the engine stops would fail on all ranks.
basics.before_shutdown(mx.nd.waitall)

__all__ = ["join"]
__all__ += lifecycle.__all__
__all__ += collectives.__all__
