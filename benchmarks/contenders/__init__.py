# SPDX-License-Identifier: Apache-2.0
"""Who is measured: one line each. Adding a contender is a line here and an adapter in this folder."""

from __future__ import annotations

import os
from typing import Dict, Mapping, NamedTuple

TENSORFLOW = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_NUM_INTRAOP_THREADS": "1",
}
# From a bad start, in samples of five steps; no search takes more of them (Tuner::most_steps).
AUTOTUNE = {
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_START": "fusion_threshold=1",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "5",
}
AUTOTUNE_STEPS = 5 * (3 + 20 + 6) + 5
ALL_CORES = {**TENSORFLOW, "TF_NUM_INTRAOP_THREADS": "0", "OMP_NUM_THREADS": str(os.cpu_count())}


class Contender(NamedTuple):
    """An adapter and how its ranks are started."""

    adapter: str  # file:class in this folder
    start: str  # horovodrun, openmpi or mpich (their mpirun), or ranks: RANK, WORLD_SIZE, MASTER_ADDR, ...
    env: Mapping[str, str] = {}
    slow: bool = False  # takes a hundred microseconds and more for the smallest call


CONTENDERS: Dict[str, Contender] = {
    "horovod": Contender("horovod_numpy:InPlace", "horovodrun"),
    "horovod observed": Contender("horovod_numpy:InPlace", "horovodrun", {"HOROVOD_TIMELINE": "DYNAMIC"}),
    "horovod integrity": Contender(
        "horovod_numpy:InPlace", "horovodrun", {"HOROVOD_LINK_SECURITY": "integrity"}
    ),
    "horovod encrypt": Contender("horovod_numpy:InPlace", "horovodrun", {"HOROVOD_LINK_SECURITY": "encrypt"}),
    "horovod, system's tcp": Contender(
        "horovod_numpy:InPlace", "horovodrun", {"HOROVOD_TCP_CONGESTION": "system"}
    ),
    "horovod out of place": Contender("horovod_numpy:OutOfPlace", "horovodrun"),
    "horovod grouped": Contender("horovod_numpy:Grouped", "horovodrun"),
    "horovod unfused": Contender("horovod_numpy:Grouped", "horovodrun", {"HOROVOD_FUSION_THRESHOLD": "1"}),
    "horovod autotuned": Contender("horovod_numpy:Grouped", "horovodrun", AUTOTUNE),
    "horovod.torch": Contender("horovod_torch:HorovodTorch", "horovodrun"),
    "horovod.tensorflow": Contender("horovod_tensorflow:Graph", "horovodrun", TENSORFLOW),
    "tensorflow alone": Contender("horovod_tensorflow:Alone", "horovodrun", TENSORFLOW),
    "tensorflow, all cores": Contender("horovod_tensorflow:Graph", "horovodrun", ALL_CORES),
    "horovod.jax": Contender("horovod_jax:Jitted", "horovodrun", {"JAX_PLATFORMS": "cpu"}),
    "jax io_callback": Contender("horovod_jax:Callback", "horovodrun", {"JAX_PLATFORMS": "cpu"}, slow=True),
    "gloo": Contender("gloo:Gloo", "ranks", slow=True),
    "gloo buckets": Contender("gloo:Buckets", "ranks"),
    "ddp": Contender("gloo:DataParallel", "ranks"),
    "alone": Contender("torch_alone:Alone", "ranks"),
    "openmpi": Contender("mpi:Mpi", "openmpi"),
    "mpich": Contender("mpi:Mpi", "mpich"),
    "memcpy": Contender("memory:Memcpy", "ranks"),
    "sockets": Contender("sockets:Sum", "ranks"),
    "sockets, no sum": Contender("sockets:Exchange", "ranks"),
}
