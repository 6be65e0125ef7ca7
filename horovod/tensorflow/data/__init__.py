# SPDX-License-Identifier: Apache-2.0
"""Input pipelines on other processes: TensorFlow's tf.data service beside a Horovod job.

config.py            how to reach a service, as a file
compute_service.py   what trainers use, and what a worker does
compute_worker.py    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker service.json
"""
