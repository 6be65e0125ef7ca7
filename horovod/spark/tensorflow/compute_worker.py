# SPDX-License-Identifier: Apache-2.0
"""Runs a tf.data service in Spark tasks, for other jobs:

    spark-submit ... -m horovod.spark.tensorflow.compute_worker service.json

Every task is a worker; there are as many as Spark's default parallelism. Trainers find the service by the
file, which the driver writes. It runs until a trainer calls `config.compute_client().shutdown()`.
"""

from __future__ import annotations

import horovod.spark
from horovod.spark.session import default_parallelism
from horovod.tensorflow.data.compute_service import compute_worker_fn
from horovod.tensorflow.data.compute_worker import arguments, serving


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> None:
    """The driver of the service; arguments as of horovod.tensorflow.data.compute_worker."""
    from pyspark.sql import SparkSession

    SparkSession.builder.appName("horovod tf.data service").getOrCreate()
    num_proc = default_parallelism()
    with serving(num_proc, dispatchers, dispatcher_side, configfile, timeout) as config:
        horovod.spark.run(compute_worker_fn, (config,), num_proc=num_proc)


if __name__ == "__main__":
    args = arguments("horovod.spark.tensorflow.compute_worker", __doc__)
    main(args.dispatchers, args.dispatcher_side, args.configfile, args.timeout)
