# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: what the in-graph kernel adds to the engine, what fusion saves, what a second rank is worth.

    python -m benchmarks.tensorflow_allreduce [--quick]

Contenders take turns in the same processes (round after round), so that a machine that slows down slows all
of them: read the ratios.

    node       allreduce of one tensor in a tf.function          / the same through horovod.numpy
    step       160 gradients, one node each, fused by the engine / one blocking call after the other
    fit        images/s of a small Keras CNN on 2 ranks, a thread each / in 1 process that has all cores
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import time
from typing import Any, Callable, Dict, List

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}


def in_turns(contenders: Dict[str, Callable[[], Any]], rounds: int, repetitions: int) -> Dict[str, float]:
    """Median seconds of each contender, measured in turns on all ranks together."""
    import horovod.numpy as hvd

    times: Dict[str, List[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            for _ in range(repetitions):
                hvd.barrier()
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def collectives(mebibytes: float, rounds: int, repetitions: int) -> Dict[str, Any]:
    """On each rank: one large tensor, and a step of many small ones."""
    import numpy as np
    import tensorflow as tf

    import horovod.numpy as hvd_numpy
    import horovod.tensorflow as hvd
    from horovod.common.basics import basics

    hvd.init()
    elements = int(mebibytes * 2**20 / 4)
    array = np.ones(elements, np.float32)
    tensor = tf.constant(array)

    @tf.function
    def node(t: Any) -> Any:
        return hvd.allreduce(t, op=hvd.Sum)

    gradients = [tf.ones([256]) for _ in range(160)]

    @tf.function
    def fused(some: Any) -> Any:
        return [hvd.allreduce(t, op=hvd.Sum) for t in some]

    def one_by_one() -> None:
        for number, t in enumerate(gradients):
            hvd.allreduce(t, op=hvd.Sum, name=f"single{number}")

    single = {
        "tensorflow": lambda: node(tensor),
        "numpy": lambda: hvd_numpy.allreduce(array, op=hvd_numpy.Sum, name="array"),
    }
    step = {"fused": lambda: fused(gradients), "one by one": one_by_one}
    for call in [*single.values(), *step.values()]:
        call()
        call()
    result: Dict[str, Any] = {
        "node": in_turns(single, rounds, repetitions),
        "step": in_turns(step, rounds, repetitions),
    }
    before = basics.metrics()
    fused(gradients)
    after = basics.metrics()
    result["tensors in a step"] = after["tensors"] - before["tensors"]
    result["batches in a step"] = after["batches"] - before["batches"]
    return result


def fit(batch: int, steps: int, epochs: int) -> List[float]:
    """Images a second of all ranks in each epoch but the first."""
    import keras
    import numpy as np

    import horovod.keras as hvd

    hvd.init()
    model = keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "sparse_categorical_crossentropy")
    x, y = np.zeros((batch * steps, 28, 28, 1), np.float32), np.zeros(batch * steps, np.int64)
    model.fit(x, y, batch_size=batch, verbose=0)

    class Stopwatch(keras.callbacks.Callback):
        """From the first batch to the last; tf.data then takes seconds to end its tuning thread."""

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 0:
                self.start = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seconds = time.perf_counter() - self.start

    speeds = []
    for _ in range(epochs):
        watch = Stopwatch()
        model.fit(x, y, batch_size=batch, verbose=0, callbacks=[watch])
        speeds.append(hvd.size() * batch * steps / watch.seconds)
    return speeds


def milliseconds(times: Dict[str, float]) -> str:
    """The contenders and their times."""
    return ", ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in times.items())


def run(quick: bool = False) -> Dict[str, Any]:
    """Measures, prints a table, and returns the numbers."""
    import horovod

    if importlib.util.find_spec("tensorflow") is None:
        print("tensorflow: not installed, not measured")
        return {}
    all_cores = {**os.environ, **QUIET}
    env = {**all_cores, **ONE_THREAD}
    size, rounds, repetitions = (4, 2, 3) if quick else (64, 7, 5)
    ranks = horovod.run(collectives, (size, rounds, repetitions), np=2, env=env)
    slowest = {
        kind: {name: max(rank[kind][name] for rank in ranks) for name in ranks[0][kind]}
        for kind in ("node", "step")
    }
    node, step = slowest["node"], slowest["step"]
    starts = {"2 ranks": (2, env), "1 process": (1, all_cores), "1 thread": (1, env)}
    speeds: Dict[str, List[float]] = {way: [] for way in starts}
    for _ in range(1 if quick else 3):
        for way, (np_, its_env) in starts.items():
            work = (64, 10, 1) if quick else (64, 100, 6)
            speeds[way] += horovod.run(fit, work, np=np_, env=its_env)[0]
    images = {way: statistics.median(values) for way, values in speeds.items()}
    result = {
        "mebibytes": size,
        "seconds": slowest,
        "node / numpy": node["tensorflow"] / node["numpy"],
        "fused / one by one": step["fused"] / step["one by one"],
        "tensors in a step": ranks[0]["tensors in a step"],
        "batches in a step": ranks[0]["batches in a step"],
        "images/s": images,
        "2 ranks / 1 process": images["2 ranks"] / images["1 process"],
    }
    lines = [
        f"TensorFlow, 2 ranks, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        f"  {size} MiB in a graph   {milliseconds(node)}"
        f"   ratio {result['node / numpy']:.2f} (at most 1.2 wanted)",
        f"  160 gradients   {milliseconds(step)}   ratio {result['fused / one by one']:.2f} (below 1 wanted)",
        f"  160 gradients   {result['tensors in a step']} tensors in {result['batches in a step']} batches",
        f"  Keras fit   images/s: {', '.join(f'{way} {value:.0f}' for way, value in images.items())}",
        "  Keras fit   2 ranks, a thread each / 1 process with all cores"
        f"   ratio {result['2 ranks / 1 process']:.2f} (above 1 wanted where 2 cores are free)",
    ]
    print("\n".join(lines))
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    run(parser.parse_args().quick)
