# SPDX-License-Identifier: Apache-2.0
"""A network in MXNet's symbol and Module interface on handwritten digits, trained on several processes.

    horovodrun -np 2 python examples/mxnet_module_mnist.py
    python examples/mxnet_module_mnist.py                         # one process: the same script
    horovodrun -np 4 python examples/mxnet_module_mnist.py --data-dir ~/mnist

Without --data-dir it uses the 1,797 small digits that come with scikit-learn. With it, the four MNIST files
(train-images-idx3-ubyte.gz, ...) in that directory. Needs MXNet 1.9.1 and numpy 1.23.
"""

import argparse
import gzip
import os

import mxnet as mx
import numpy as np

import horovod.mxnet as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data-dir", help="directory with the MNIST files")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=64, help="per process")
parser.add_argument("--lr", type=float, default=0.05, help="for one process")
args = parser.parse_args()


def load(directory):
    """(train images, train labels, test images, test labels), images flattened to 0..1."""
    if directory is None:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        x = (x / 16).astype(np.float32)
        return x[:1500], y[:1500], x[1500:], y[1500:]

    def read(name, header):
        with gzip.open(os.path.join(directory, name)) as f:
            return np.frombuffer(f.read(), np.uint8)[header:]

    parts = []
    for which in ("train", "t10k"):
        parts.append(read(f"{which}-images-idx3-ubyte.gz", 16).reshape(-1, 784).astype(np.float32) / 255)
        parts.append(read(f"{which}-labels-idx1-ubyte.gz", 8))
    return parts


def network():
    x = mx.sym.var("data")
    x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=128, name="fc1"), act_type="relu")
    x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=64, name="fc2"), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=10, name="fc3"), name="softmax")


# Horovod: join the job, and take this process' part of the data.
hvd.init()
mx.random.seed(hvd.rank())
train_x, train_y, test_x, test_y = load(args.data_dir)
shard = slice(hvd.rank(), len(train_x) // hvd.size() * hvd.size(), hvd.size())
train = mx.io.NDArrayIter(
    train_x[shard], train_y[shard], args.batch_size, shuffle=True, last_batch_handle="discard"
)
test = mx.io.NDArrayIter(test_x, test_y, args.batch_size)

module = mx.mod.Module(network(), context=mx.cpu())
module.bind(train.provide_data, train.provide_label)
module.init_params(mx.init.Xavier())

# Horovod: start from the same weights everywhere.
arg_params, aux_params = module.get_params()
hvd.broadcast_parameters(arg_params, root_rank=0)
hvd.broadcast_parameters(aux_params, root_rank=0)
module.set_params(arg_params, aux_params)

# Horovod: scale the learning rate with the number of processes, and average the gradients.
optimizer = mx.optimizer.create(
    "sgd", learning_rate=args.lr * hvd.size(), momentum=0.9, rescale_grad=1.0 / args.batch_size
)
optimizer = hvd.DistributedOptimizer(optimizer)


def report(epoch, *_):
    # Horovod: all processes have the same weights; let one of them report.
    if hvd.rank() == 0:
        accuracy = dict(module.score(test, "acc"))["accuracy"]
        print(f"epoch {epoch + 1}: test accuracy {accuracy:.3f}", flush=True)


module.fit(train, optimizer=optimizer, num_epoch=args.epochs, kvstore=None, epoch_end_callback=report)
