# SPDX-License-Identifier: Apache-2.0
"""A TF1-style program: a graph, a monitored session, and a hook. TensorFlow 2 runs it through tf.compat.v1.

    horovodrun -np 2 python examples/tensorflow1_graph_mnist.py
    mpirun -np 4 python examples/tensorflow1_graph_mnist.py
    horovodrun -np 2 python examples/tensorflow1_graph_mnist.py --data mnist.npz

Without --data it uses scikit-learn's small digits when installed, else generated images.
"""

import argparse
import tempfile

import tensorflow.compat.v1 as tf
from tensorflow_example_data import load_digits

import horovod.tensorflow as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", help="mnist.npz with x_train and y_train")
parser.add_argument("--steps", type=int, default=400, help="steps over all ranks")
parser.add_argument("--batch-size", type=int, default=50)
parser.add_argument("--seed", type=int, default=1, help="of the weights and the batches")
args = parser.parse_args()

tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.INFO)


def network(images, labels):
    """Two convolutions and a hidden layer, written out as one did then."""
    side = int(images.shape[1])

    def weights(name, *shape):
        return tf.get_variable(name, shape, initializer=tf.glorot_uniform_initializer())

    x = tf.reshape(images, [-1, side, side, 1])
    for number, (inputs, outputs) in enumerate([(1, 16), (16, 32)]):
        x = tf.nn.relu(tf.nn.conv2d(x, weights(f"conv{number}", 3, 3, inputs, outputs), [1, 1, 1, 1], "SAME"))
        x = tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    size = int(x.shape[1]) * int(x.shape[2]) * 32
    hidden = tf.nn.relu(tf.matmul(tf.reshape(x, [-1, size]), weights("hidden", size, 128)))
    logits = tf.matmul(hidden, weights("logits", 128, 10))
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    return loss, accuracy


def batches(x, y, size, seed):
    """Endless batches; each rank draws its own."""
    import numpy as np

    random = np.random.default_rng(seed)
    while True:
        chosen = random.integers(0, len(x), size)
        yield x[chosen], y[chosen]


def main(_):
    hvd.init()  # 1. join the job: from here on there are rank() and size()
    tf.set_random_seed(args.seed)  # the same weights to start from in every run

    x_train, y_train, x_test, y_test = load_digits(args.data)
    with tf.name_scope("input"):
        images = tf.placeholder(tf.float32, [None, *x_train.shape[1:]], name="image")
        labels = tf.placeholder(tf.int64, [None], name="label")
    loss, accuracy = network(images, labels)

    # 2. size() batches make one step, so the step may be size() times as long.
    opt = tf.train.AdagradOptimizer(0.01 * hvd.size())
    # 3. Average the gradients of all ranks before they are applied.
    opt = hvd.DistributedOptimizer(opt)

    global_step = tf.train.get_or_create_global_step()
    train_op = opt.minimize(loss, global_step=global_step)

    hooks = [
        # 4. All ranks start from rank 0's variables, be they random or from its checkpoint.
        hvd.BroadcastGlobalVariablesHook(0),
        # The ranks share the steps.
        tf.train.StopAtStepHook(last_step=args.steps // hvd.size()),
        tf.train.LoggingTensorHook(tensors={"step": global_step, "loss": loss}, every_n_iter=50),
    ]

    # Each process of a host takes another of its GPUs.
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())

    # 5. One rank writes the files.
    checkpoint_dir = tempfile.mkdtemp() if hvd.rank() == 0 else None
    training = batches(x_train, y_train, args.batch_size, seed=[args.seed, hvd.rank()])

    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=checkpoint_dir, hooks=hooks, config=config
    ) as session:
        while not session.should_stop():
            x, y = next(training)
            session.run(train_op, feed_dict={images: x, labels: y})
            if not session.should_stop():
                correct = session.run(accuracy, feed_dict={images: x_test, labels: y_test})
    if hvd.rank() == 0:
        print(f"test accuracy {correct:.3f}")


if __name__ == "__main__":
    tf.app.run()
