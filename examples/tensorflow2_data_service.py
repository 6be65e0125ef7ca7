# SPDX-License-Identifier: Apache-2.0
"""Two jobs: workers that prepare images (tf.data service), and ranks that train on them.

    horovodrun -np 2 python -m horovod.tensorflow.data.compute_worker /tmp/service.json &
    python examples/tensorflow2_data_service.py /tmp/service.json --training-tasks 2

With `--dispatcher-side training` for the workers, the ranks that train run the dispatcher. The workers end
with the training.
"""

import argparse

from tensorflow_example_data import load_digits

import horovod
from horovod.tensorflow.data.compute_service import TfDataServiceConfig

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("configfile", help="the file that the workers write")
parser.add_argument("--training-tasks", type=int, default=1, help="ranks that train")
parser.add_argument("--reuse-dataset", action="store_true", help="ranks share one pass over the data")
parser.add_argument("--round-robin", action="store_true", help="... and take turns")
parser.add_argument("--steps", type=int, default=100)


def train(config, images, labels, reuse_dataset, round_robin, steps):
    """One rank of the training. Returns its last loss."""
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd
    from horovod.tensorflow.data.compute_service import tf_data_service

    hvd.init()
    # What comes before the service is done by its workers: that should be the expensive part.
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().shuffle(10000)
    dataset = dataset.map(lambda image, label: (tf.image.random_contrast(image, 0.8, 1.2), label)).batch(32)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input(images.shape[1:]),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = hvd.DistributedOptimizer(tf.optimizers.Adam(0.002 * hvd.size()))
    model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer)

    def fit(dataset):
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
        return model.fit(dataset, steps_per_epoch=steps, callbacks=callbacks, verbose=0).history["loss"][-1]

    if config.dispatcher_side == "compute":
        return fit(
            dataset.send_to_data_service(
                config, hvd.rank(), hvd.size(), reuse_dataset=reuse_dataset, round_robin=round_robin
            )
        )
    with tf_data_service(
        config, hvd.rank()
    ) as service:  # the dispatcher runs in rank 0, while this block does
        job = "job" if reuse_dataset else None
        turns = (hvd.rank(), hvd.size()) if reuse_dataset and round_robin else (None, None)
        distribute = tf.data.experimental.service.distribute
        return fit(dataset.apply(distribute("distributed_epoch", service, job, *turns)))


if __name__ == "__main__":
    args = parser.parse_args()
    config = TfDataServiceConfig.read(args.configfile, wait_for_file_creation=True)
    images, labels, _, _ = load_digits()
    try:
        losses = horovod.run(
            train,
            (config, images[..., None], labels, args.reuse_dataset, args.round_robin, args.steps),
            np=args.training_tasks,
        )
        print(f"loss {losses[0]:.3f} on rank 0 of {len(losses)}")
    finally:
        config.compute_client().shutdown()
