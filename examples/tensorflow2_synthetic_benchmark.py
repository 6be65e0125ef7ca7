# SPDX-License-Identifier: Apache-2.0
"""Images a second of a model on data made up once: what the machine and the network can do.

horovodrun -np 2 python examples/tensorflow2_synthetic_benchmark.py --model MobileNetV2 --image-size 96
horovodrun -np 8 python examples/tensorflow2_synthetic_benchmark.py --model ResNet50 --fp16-allreduce
"""

import argparse
import timeit

import numpy as np
import tensorflow as tf
from tensorflow.keras import applications

import horovod.tensorflow as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fp16-allreduce", action="store_true", help="use fp16 compression during allreduce")
parser.add_argument("--model", default="ResNet50", help="a model of tf.keras.applications")
parser.add_argument("--image-size", type=int, default=224)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--num-warmup-batches", type=int, default=10)
parser.add_argument("--num-batches-per-iter", type=int, default=10)
parser.add_argument("--num-iters", type=int, default=10)
parser.add_argument("--eager", action="store_true", help="run without tf.function")
parser.add_argument("--no-cuda", action="store_true", help="use the CPU even if there are GPUs")
args = parser.parse_args()

hvd.init()
gpus = [] if args.no_cuda else tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()] if gpus else [], "GPU")
device = "GPU" if gpus else "CPU"

model = getattr(applications, args.model)(weights=None, input_shape=(args.image_size, args.image_size, 3))
opt = tf.optimizers.SGD(0.01)

data = tf.random.uniform([args.batch_size, args.image_size, args.image_size, 3])
target = tf.random.uniform([args.batch_size], minval=0, maxval=999, dtype=tf.int64)
loss_function = tf.losses.SparseCategoricalCrossentropy()
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none


def step():
    with tf.GradientTape() as tape:
        loss = loss_function(target, model(data, training=True))

    tape = hvd.DistributedGradientTape(tape, compression=compression)

    gradients = tape.gradient(loss, model.trainable_variables)
    opt.apply_gradients(zip(gradients, model.trainable_variables))


benchmark_step = step if args.eager else tf.function(step)


def log(text):
    if hvd.rank() == 0:
        print(text, flush=True)


log(f"Model: {args.model}")
log(f"Batch size: {args.batch_size}")
log(f"Number of {device}s: {hvd.size()}")

log("Warming up")
benchmark_step()
# All ranks go on alike, once the optimizer has its variables.
hvd.broadcast_variables(model.variables, root_rank=0)
hvd.broadcast_variables(opt.variables, root_rank=0)
timeit.timeit(benchmark_step, number=args.num_warmup_batches)

log("Measuring")
rates = []
for number in range(args.num_iters):
    seconds = timeit.timeit(benchmark_step, number=args.num_batches_per_iter)
    rate = args.batch_size * args.num_batches_per_iter / seconds
    log(f"Iteration {number}: {rate:.1f} img/sec per {device}")
    rates.append(rate)

mean = np.mean(rates)
spread = 1.96 * np.std(rates)
log(f"Img/sec per {device}: {mean:.1f} +-{spread:.1f}")
log(f"Total img/sec on {hvd.size()} {device}(s): {hvd.size() * mean:.1f} +-{hvd.size() * spread:.1f}")
