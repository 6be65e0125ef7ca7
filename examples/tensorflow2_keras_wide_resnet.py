# SPDX-License-Identifier: Apache-2.0
"""A lab: Wide ResNet on Fashion-MNIST up to a target accuracy, with warm-up, rate steps and augmentation.

    horovodrun -np 2 python examples/tensorflow2_keras_wide_resnet.py --epochs 2
    horovodrun -np 4 python examples/tensorflow2_keras_wide_resnet.py --data fashion-mnist/ --width 10

--data is a directory with the data set's four .gz files; without it, images are generated in its format.
"""

import argparse
import time

import numpy as np
import tensorflow as tf
from tensorflow_example_data import load_fashion

import horovod.tensorflow.keras as hvd

keras = tf.keras
layers = keras.layers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", help="directory with Fashion-MNIST's four files")
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--batch-size", type=int, default=32, help="per rank")
parser.add_argument("--base-lr", type=float, default=0.01, help="for one rank")
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--wd", type=float, default=0.000005, help="weight decay")
parser.add_argument("--warmup-epochs", type=int, default=1)
parser.add_argument("--target-accuracy", type=float, default=0.96)
parser.add_argument("--patience", type=int, default=2, help="epochs at the target before stopping")
parser.add_argument("--depth", type=int, default=10, help="6n + 4")
parser.add_argument("--width", type=int, default=1)
parser.add_argument("--images", type=int, default=2048, help="how many to generate without --data")
args = parser.parse_args()


def wide_resnet(depth, width, classes=10):
    """Zagoruyko and Komodakis 2016: three groups of pre-activation blocks, `width` times as wide."""

    def block(x, filters, stride):
        y = layers.Activation("relu")(layers.BatchNormalization()(x))
        shortcut = x if x.shape[-1] == filters and stride == 1 else layers.Conv2D(filters, 1, stride)(y)
        y = layers.Conv2D(filters, 3, stride, padding="same")(y)
        y = layers.Activation("relu")(layers.BatchNormalization()(y))
        return layers.Add()([shortcut, layers.Conv2D(filters, 3, padding="same")(y)])

    inputs = layers.Input((28, 28, 1))
    x = layers.Conv2D(16, 3, padding="same")(inputs)
    for group in range(3):
        for number in range((depth - 4) // 6):
            x = block(x, 16 * width * 2**group, 2 if group and not number else 1)
    x = layers.GlobalAveragePooling2D()(layers.Activation("relu")(layers.BatchNormalization()(x)))
    return keras.Model(inputs, layers.Dense(classes, activation="softmax")(x))


def with_settings(model, weight_decay):
    """The same model with weight decay and other batch normalisation, changed through its configuration."""
    config = model.get_config()
    decay = keras.regularizers.serialize(keras.regularizers.L2(weight_decay))
    for layer in config["layers"]:
        if layer["class_name"] in ("Conv2D", "Dense"):
            layer["config"]["kernel_regularizer"] = decay
        if layer["class_name"] == "BatchNormalization":
            layer["config"].update(momentum=0.9, epsilon=1e-5)
    return keras.Model.from_config(config)


class Throughput(keras.callbacks.Callback):
    """Images a second of all ranks, and the time of the whole training."""

    def on_train_begin(self, logs=None):
        self.start = time.time()

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch_start = time.time()

    def on_epoch_end(self, epoch, logs=None):
        images = self.params["steps"] * args.batch_size * hvd.size()
        if hvd.rank() == 0:
            print(f"Epoch {epoch + 1}: {images / (time.time() - self.epoch_start):.0f} images/s")

    def on_train_end(self, logs=None):
        if hvd.rank() == 0:
            print(f"Total training time: {time.time() - self.start:.1f} s")


class StopAtAccuracy(keras.callbacks.Callback):
    """Stops when the averaged validation accuracy has been at the target for some epochs."""

    def __init__(self, target, patience):
        super().__init__()
        self.target, self.patience, self.reached = target, patience, 0

    def on_epoch_end(self, epoch, logs=None):
        self.reached = self.reached + 1 if logs["val_accuracy"] >= self.target else 0
        if self.reached >= self.patience:
            self.model.stop_training = True


def main():
    hvd.init()
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    x_train, y_train, x_test, y_test = load_fashion(args.data, args.images)
    x_train, x_test = (x.astype("float32")[..., np.newaxis] / 255 for x in (x_train, x_test))
    num_test = len(x_test) // args.batch_size

    def augment(image, label):
        image = tf.image.random_crop(tf.pad(image, [[2, 2], [2, 2], [0, 0]]), [28, 28, 1])
        return tf.image.random_flip_left_right(image), label

    train = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shard(hvd.size(), hvd.rank())
    train = train.shuffle(10000, seed=hvd.rank()).repeat().map(augment).batch(args.batch_size).prefetch(2)
    test = tf.data.Dataset.from_tensor_slices((x_test, y_test)).shuffle(10000, seed=hvd.rank())
    test = test.repeat().batch(args.batch_size)

    model = with_settings(wide_resnet(args.depth, args.width), args.wd)
    lr = args.base_lr * hvd.size()
    opt = hvd.DistributedOptimizer(keras.optimizers.SGD(learning_rate=lr, momentum=args.momentum))
    model.compile(optimizer=opt, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

    first, second = 15, 25  # epochs at which the rate drops
    schedule = hvd.callbacks.LearningRateScheduleCallback
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=lr, warmup_epochs=args.warmup_epochs, verbose=1),
        schedule(initial_lr=lr, multiplier=lambda e: 1.0, start_epoch=args.warmup_epochs, end_epoch=first),
        schedule(initial_lr=lr, multiplier=lambda e: 1e-1, start_epoch=first, end_epoch=second),
        schedule(initial_lr=lr, multiplier=lambda e: 1e-2, start_epoch=second),
        Throughput(),
        StopAtAccuracy(args.target_accuracy, args.patience),
    ]
    model.fit(
        train,
        steps_per_epoch=len(x_train) // (args.batch_size * hvd.size()),
        epochs=args.epochs,
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
        validation_data=test,
        # Each rank looks at three random parts of its share: averaged over ranks, a good estimate.
        validation_steps=3 * num_test // hvd.size(),
    )
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=args.batch_size, verbose=0)
    if hvd.rank() == 0:
        print(f"Final evaluation: loss {loss:.4f}, test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
