# SPDX-License-Identifier: Apache-2.0
"""Runs a tf.data service for other jobs:

    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker service.json

Every process is a worker. Trainers find the service by the file, which rank 0 writes:
`TfDataServiceConfig.read("service.json", wait_for_file_creation=True)`. It runs until a trainer, or whoever
started it, calls `config.compute_client().shutdown()`.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Iterator, Optional, Sequence

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
    check_number(basics.size(), dispatchers)
    with contextlib.ExitStack() as stack:
        config: Optional[TfDataServiceConfig] = None
        if basics.rank() == 0:
            service = serving(basics.size(), dispatchers, dispatcher_side, configfile, timeout)
            config = stack.enter_context(service)
        compute_worker_fn(broadcast_object(config, root_rank=0, name="compute_config"))


@contextlib.contextmanager
def serving(
    num_proc: int, dispatchers: int, dispatcher_side: str, configfile: str, timeout: int
) -> Iterator[TfDataServiceConfig]:
    """The compute service of this many workers, described in the file, until the context ends."""
    check_number(num_proc, dispatchers)
    key, each = make_secret(), num_proc // dispatchers
    with ComputeService(dispatchers, each, key) as service:
        config = TfDataServiceConfig(dispatchers, each, dispatcher_side, service.addresses(), key, timeout)
        config.write(configfile)
        yield config


def check_number(num_proc: int, dispatchers: int) -> None:
    """Refuses workers that cannot be dealt out to the dispatchers."""
    if dispatchers < 1 or num_proc % dispatchers:
        raise ValueError(
            f"Number of processes ({num_proc}) must be a multiple of number of dispatchers ({dispatchers})."
        )


def arguments(
    module: str, description: Optional[str], argv: Optional[Sequence[str]] = None
) -> argparse.Namespace:
    """The command line of this command, and of the one for Spark."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("configfile", help="where to write how to reach the service")
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
    args = arguments("horovod.tensorflow.data.compute_worker", __doc__)
    main(args.dispatchers, args.dispatcher_side, args.configfile, args.timeout)
