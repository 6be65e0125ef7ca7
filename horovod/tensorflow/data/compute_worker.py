# SPDX-License-Identifier: Apache-2.0
"""Runs a tf.data service for other jobs:

    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker service.json

Every process is a worker. Trainers find the service by the file, which rank 0 writes:
`TfDataServiceConfig.read("service.json", wait_for_file_creation=True)`. It runs until a trainer, or whoever
started it, calls `config.compute_client().shutdown()`.
"""

from __future__ import annotations

import argparse
from typing import Optional, Sequence

from horovod.common.basics import basics
from horovod.data.compute_service import ComputeService
from horovod.rendezvous.auth import make_secret
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn
from horovod.tensorflow.functions import broadcast_object


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> None:
    """One process of the service.

    Args:
        dispatchers: how many dispatchers; the number of processes must be a multiple of it.
        dispatcher_side: "compute" or "training": where the dispatchers run.
        configfile: where rank 0 says how to reach the service.
        timeout: seconds to wait for dispatchers and workers.

    Raises:
        ValueError: if the processes cannot be dealt out to the dispatchers.
    """
    basics.init()
    rank, size = basics.rank(), basics.size()
    if dispatchers < 1 or size % dispatchers:
        raise ValueError(
            f"Number of processes ({size}) must be a multiple of number of dispatchers ({dispatchers})."
        )
    service: Optional[ComputeService] = None
    config: Optional[TfDataServiceConfig] = None
    try:
        if rank == 0:
            key = make_secret()
            service = ComputeService(dispatchers, size // dispatchers, key)
            config = TfDataServiceConfig(
                dispatchers, size // dispatchers, dispatcher_side, service.addresses(), key, timeout
            )
            config.write(configfile)
        compute_worker_fn(broadcast_object(config, root_rank=0, name="compute_config"))
    finally:
        if service is not None:
            service.shutdown()


def _arguments(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m horovod.tensorflow.data.compute_worker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("configfile", help="where rank 0 writes how to reach the service")
    parser.add_argument("--dispatchers", type=int, default=1, help="how many dispatchers (default 1)")
    parser.add_argument(
        "--dispatcher-side",
        choices=["compute", "training"],
        default="compute",
        help="where dispatchers run: beside the workers (default) or in the ranks that train",
    )
    parser.add_argument(
        "--timeout", type=int, default=60, help="seconds to wait for dispatchers and workers (default 60)"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    args = _arguments()
    main(args.dispatchers, args.dispatcher_side, args.configfile, args.timeout)
