# SPDX-License-Identifier: Apache-2.0
"""A small training in which one rank is slow: slow_rank.py RANK [STEPS]. Computing is sleeping here."""

from __future__ import annotations

import sys
import time

import numpy as np

import horovod.numpy as hvd
from horovod.common.observation import step_done

hvd.init()
slow, steps = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10
gradients = [np.ones(250_000 * (1 + number % 3), np.float32) for number in range(6)]
hvd.barrier()
for _ in range(steps):
    time.sleep(0.15 if hvd.rank() == slow else 0.03)  # loading a batch, and the forward pass
    handles = []
    for number, gradient in enumerate(gradients):
        time.sleep(0.002)  # the backward pass
        handles.append(hvd.allreduce_async(gradient, name=f"gradient.{number}"))
    for handle in handles:
        hvd.synchronize(handle)
    step_done()
hvd.shutdown()
