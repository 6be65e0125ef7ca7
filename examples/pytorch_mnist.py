# SPDX-License-Identifier: Apache-2.0
"""A PyTorch network on handwritten digits, trained on several processes.

    horovodrun -np 2 python examples/pytorch_mnist.py
    python examples/pytorch_mnist.py                                  # one process: the same script
    horovodrun -np 4 python examples/pytorch_mnist.py --data-dir ~/mnist

Without --data-dir it uses the 1,797 small digits that come with scikit-learn. With it, the four MNIST files
(train-images-idx3-ubyte.gz, ...) in that directory.
"""

import argparse

import torch
import torch.nn.functional as F
from _data import load_digits
from _torch_model import Net, correct, pick_device
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data-dir", help="directory with the MNIST files")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=32, help="per process")
parser.add_argument("--lr", type=float, default=0.02, help="for one process")
parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in half precision")
args = parser.parse_args()

# Horovod: join the job.
hvd.init()
torch.manual_seed(42)

# Horovod: one GPU for each process of a host.
device = pick_device(hvd.local_rank(), hvd.local_size())

# Horovod: each process trains on its own part of the data, and tests on its own part.
data = load_digits(args.data_dir)
train_set = TensorDataset(torch.from_numpy(data.train_x), torch.from_numpy(data.train_y))
sampler = DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler, drop_last=True)
mine = slice(hvd.rank(), None, hvd.size())
test_x, test_y = (torch.from_numpy(part[mine]).to(device) for part in (data.test_x, data.test_y))

model = Net(side=data.train_x.shape[-1]).to(device)
# Horovod: the batch of all processes together is size() times larger, so is the learning rate.
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)

# Horovod: average the gradients over the processes.
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), compression=compression
)

# Horovod: start from the same weights and optimizer state everywhere.
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    total = torch.zeros((), device=device)
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        total += loss.detach()
    # Horovod: the mean loss and the sum of right answers over all processes; only one prints them.
    mean = hvd.allreduce(total / len(loader))
    right = hvd.allreduce(correct(model, test_x, test_y), op=hvd.Sum)
    if hvd.rank() == 0:
        accuracy = right.item() / len(data.test_y)
        print(f"epoch {epoch + 1}: loss {mean:.4f}, test accuracy {accuracy:.3f}", flush=True)
