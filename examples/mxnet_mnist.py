# SPDX-License-Identifier: Apache-2.0
"""A gluon network on handwritten digits, trained on several processes.

    horovodrun -np 2 python examples/mxnet_mnist.py
    python examples/mxnet_mnist.py                                # one process: the same script
    horovodrun -np 4 python examples/mxnet_mnist.py --data-dir ~/mnist

Without --data-dir it uses the 1,797 small digits that come with scikit-learn. With it, the four MNIST files
(train-images-idx3-ubyte.gz, ...) in that directory. Needs MXNet 1.9.1 and numpy 1.23.
"""

import argparse
import gzip
import os

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

import horovod.mxnet as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data-dir", help="directory with the MNIST files")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=64, help="per process")
parser.add_argument("--lr", type=float, default=0.02, help="for one process")
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
args = parser.parse_args()


def load(directory):
    """(train images, train labels, test images, test labels), images as [n, 1, side, side] in 0..1."""
    if directory is None:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        x = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8)
        return x[:1500], y[:1500], x[1500:], y[1500:]

    def read(name, header):
        with gzip.open(os.path.join(directory, name)) as f:
            return np.frombuffer(f.read(), np.uint8)[header:]

    parts = []
    for which in ("train", "t10k"):
        parts.append(
            read(f"{which}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28).astype(np.float32) / 255
        )
        parts.append(read(f"{which}-labels-idx1-ubyte.gz", 8))
    return parts


# Horovod: join the job, and take this process' part of the data.
hvd.init()
mx.random.seed(42 + hvd.rank())
train_x, train_y, test_x, test_y = load(args.data_dir)
shard = slice(hvd.rank(), len(train_x) // hvd.size() * hvd.size(), hvd.size())
train_data = gluon.data.DataLoader(
    gluon.data.ArrayDataset(train_x[shard], train_y[shard].astype(np.float32)),
    args.batch_size,
    shuffle=True,
    last_batch="discard",
)

net = nn.HybridSequential()
net.add(
    nn.Conv2D(16, 3, padding=1, activation="relu"),
    nn.MaxPool2D(),
    nn.Conv2D(32, 3, padding=1, activation="relu"),
    nn.MaxPool2D(),
    nn.Flatten(),
    nn.Dense(64, activation="relu"),
    nn.Dense(10),
)
net.initialize(mx.init.Xavier())
net.hybridize()

# Horovod: start from the same weights everywhere (also those whose shape the first batch decides).
params = net.collect_params()
hvd.broadcast_parameters(params, root_rank=0)

# Horovod: scale the learning rate with the number of processes, and average the gradients.
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
options = {"learning_rate": args.lr * hvd.size(), "momentum": args.momentum}
trainer = hvd.DistributedTrainer(params, "sgd", options, compression=compression)
loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()

for epoch in range(args.epochs):
    for data, label in train_data:
        with autograd.record():
            loss = loss_fn(net(data), label)
        loss.backward()
        trainer.step(args.batch_size)
    # Horovod: each process tests its share; sum the counts and average the loss.
    guess = net(mx.nd.array(test_x[hvd.rank() :: hvd.size()])).argmax(axis=1)
    right = hvd.allreduce((guess == mx.nd.array(test_y[hvd.rank() :: hvd.size()])).sum(), op=hvd.Sum)
    mean = hvd.allreduce(loss.mean())
    if hvd.rank() == 0:
        accuracy = right.asscalar() / len(test_x)
        print(f"epoch {epoch + 1}: loss {mean.asscalar():.4f}, test accuracy {accuracy:.3f}", flush=True)
