# SPDX-License-Identifier: Apache-2.0
"""What TensorFlow itself offers Keras 3 on several workers, so that the documentation says what was seen.

If this test fails, MultiWorkerMirroredStrategy has learnt to train Keras 3 models: change docs/keras.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from ports import free_ports

SCRIPT = """
import numpy as np, tensorflow as tf, keras
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
try:
    model.fit(np.ones((8, 2), "f"), np.ones((8, 1), "f"), batch_size=4, verbose=0)
    print("trained", tf.__version__, keras.__version__)
except ValueError as error:
    print("ValueError", tf.__version__, keras.__version__, "PerReplica" in str(error))
"""


def test_multi_worker_mirrored_strategy_does_not_train_keras_3():
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    processes = []
    for index in range(2):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        env = {**os.environ, "TF_CONFIG": json.dumps(config), "TF_CPP_MIN_LOG_LEVEL": "3"}
        env.update(CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow")
        env.pop("TF_USE_LEGACY_KERAS", None)
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", SCRIPT],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        outputs = [process.communicate(timeout=600) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for output, errors in outputs:
        assert output.startswith("ValueError") and output.strip().endswith("True"), (output, errors[-1000:])
