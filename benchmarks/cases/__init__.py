# SPDX-License-Identifier: Apache-2.0
"""What is measured: one file each. Adding a benchmark is a file with `run(bench)` and a line here."""

from __future__ import annotations

from typing import Callable, Dict

from benchmarks.bench import Bench, Rows
from benchmarks.cases import (
    allreduce,
    autotune,
    busy_thread,
    coordinator,
    four_hosts,
    jax_jit,
    link_security,
    many_tensors,
    numpy_forms,
    observation,
    startup,
    tensorflow_graph,
    torch_ddp,
    two_hosts,
)

CASES: Dict[str, Callable[[Bench], Rows]] = {
    "coordinator": coordinator.run,  # needs 9 GB, which it has before the others' ranks are there
    "allreduce": allreduce.run,
    "many_tensors": many_tensors.run,
    "autotune": autotune.run,
    "numpy_forms": numpy_forms.run,
    "observation": observation.run,
    "startup": startup.run,
    "two_hosts": two_hosts.run,
    "four_hosts": four_hosts.run,
    "link_security": link_security.run,
    "torch_ddp": torch_ddp.run,
    "tensorflow_graph": tensorflow_graph.run,
    "jax_jit": jax_jit.run,
    "busy_thread": busy_thread.run,
}
NOT_QUICK = ("jax_jit", "busy_thread", "coordinator", "link_security")  # they have nothing to reach
