# SPDX-License-Identifier: Apache-2.0
"""A driver to be killed, or outside of the cluster: driver_script.py ADDRESS FOLDER [client | elastic]."""

from __future__ import annotations

import os
import sys

import ray
import ray_functions as functions

from horovod.ray import RayExecutor

address, folder, how = sys.argv[1:]
ray.init(address=address, log_to_driver=False)
sizes = {"min_workers": 2, "max_workers": 2} if how == "elastic" else {"num_workers": 2}
executor = RayExecutor(RayExecutor.create_settings(), **sizes)
executor.start()
if how == "client":
    results = executor.run(functions.where)
    print("sums", [one["sum"] for one in results], flush=True)
    try:
        executor.run(functions.fail_on, (1, "raise"))
    except ValueError as error:
        print("raised", "bad batch" in str(error), flush=True)
    print("references", ray.get(executor.run_remote(os.getpid)) == [one["pid"] for one in results])
    executor.shutdown()
else:
    executor.run(functions.elastic_training, (folder, 10**9))
