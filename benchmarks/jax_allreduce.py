# SPDX-License-Identifier: Apache-2.0
"""A jitted allreduce beside horovod.numpy and beside the same call through jax's io_callback.

    python benchmarks/jax_allreduce.py [--np 2] [--json out.json]

The jitted program reduces a donated argument in place, as a training step reduces its gradients;
horovod.numpy reduces in place as well. io_callback is what remains without a custom call: jax copies the
operand to the host function and the result back. All three take turns in the same processes, a few calls
each; the first call of a turn is not counted, because it meets the memory that the one before left behind.
Each number is the median of the time that the slowest rank needed.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, Callable, Dict, List

SIZES = {"4 B": 1, "1 MiB": 1 << 18, "64 MiB": 1 << 24}  # float32 elements
TURNS = {"4 B": 60, "1 MiB": 20, "64 MiB": 6}
CALLS = 5  # in a turn


def measure() -> List[Dict[str, Any]]:
    """Runs on every rank; the rows of the table."""
    import os

    os.environ["JAX_PLATFORMS"] = "cpu"
    import statistics
    import time

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import io_callback

    import horovod.jax as hvd
    import horovod.numpy as hvd_numpy

    hvd.init()

    def through_callback(x: Any) -> Any:
        call = lambda a: hvd_numpy.allreduce(np.asarray(a), op=hvd.Sum, name="callback")  # noqa: E731
        return io_callback(call, jax.ShapeDtypeStruct(x.shape, x.dtype), x, ordered=True)

    def jitted(function: Callable[[Any], Any], count: int) -> Callable[[], None]:
        step, state = jax.jit(function, donate_argnums=0), [jnp.zeros(count, jnp.float32)]

        def once() -> None:
            state[0] = step(state[0])
            state[0].block_until_ready()

        return once

    rows = []
    for label, count in SIZES.items():
        array = np.zeros(count, np.float32)
        ways = {
            "jit": jitted(lambda x: hvd.allreduce(x, op=hvd.Sum, name="jit"), count),
            "numpy": lambda array=array: hvd_numpy.allreduce_(array, op=hvd.Sum, name="numpy"),
            "io_callback": jitted(through_callback, count),
        }
        times: Dict[str, List[float]] = {way: [] for way in ways}
        for turn in range(TURNS[label] + 1):
            for way, once in ways.items():
                for call in range(CALLS):
                    hvd.barrier()
                    start = time.perf_counter()
                    once()
                    if turn and call:
                        times[way].append(time.perf_counter() - start)
        slowest = hvd_numpy.allreduce(
            np.array([times[way] for way in ways]), op=hvd.Max, name=f"times.{label}"
        )
        medians = {way: statistics.median(row) for way, row in zip(ways, slowest.tolist())}
        rows.append({"size": label, **medians, "jit / numpy": medians["jit"] / medians["numpy"]})
    hvd.shutdown()
    return rows


def main() -> None:
    """Prints the table."""
    import horovod

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--np", type=int, default=2, help="number of ranks")
    parser.add_argument("--json", help="also write the numbers, in seconds, to this file")
    arguments = parser.parse_args()
    rows = horovod.run(measure, np=arguments.np)[0]
    print(f"allreduce of float32 on {arguments.np} ranks, microseconds")
    print(f"{'size':>8} {'jitted':>10} {'numpy':>10} {'io_callback':>12} {'jitted/numpy':>13}")
    for row in rows:
        times = f"{row['jit'] * 1e6:10.0f} {row['numpy'] * 1e6:10.0f} {row['io_callback'] * 1e6:12.0f}"
        print(f"{row['size']:>8} {times} {row['jit / numpy']:13.2f}")
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump({"np": arguments.np, "rows": rows}, out, indent=1)


if __name__ == "__main__":
    main()
