# SPDX-License-Identifier: Apache-2.0
"""A PyTorch network on handwritten digits, trained on a Ray cluster; elastic with --min-workers.

python examples/ray_pytorch_mnist.py                              # Ray on this machine, two ranks
python examples/ray_pytorch_mnist.py --address auto --num-workers 8
python examples/ray_pytorch_mnist.py --address auto --min-workers 2 --max-workers 8
"""

import argparse

import ray
from sklearn.datasets import load_digits

from horovod.ray import RayExecutor, ray_logger


def train(images, labels, epochs, lr, elastic):
    import torch
    import torch.nn.functional as F

    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    device = torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    # What survives when ranks come and go; in a job of fixed size it changes nothing.
    state = hvd.elastic.TorchState(model, optimizer, epoch=0, loss=0.0)

    @hvd.elastic.run
    def loop(state):
        while state.epoch < epochs:
            # The same order everywhere, and each rank its own part of it, whatever their number is now.
            order = torch.randperm(1500, generator=torch.Generator().manual_seed(state.epoch))
            mine = order[hvd.rank() :: hvd.size()][: 1500 // hvd.size()]
            for batch in mine.split(32):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x[batch].to(device)), y[batch].to(device))
                loss.backward()
                optimizer.step()
            state.loss = hvd.allreduce(loss.detach()).item()
            if hvd.rank() == 0 and elastic:
                ray_logger.log({"epoch": state.epoch, "loss": state.loss, "ranks": hvd.size()})
            state.epoch += 1
            state.commit()

    loop(state)
    with torch.no_grad():
        accuracy = (model(x[1500:].to(device)).argmax(1).cpu() == y[1500:]).float().mean().item()
    return {"rank": hvd.rank(), "loss": state.loss, "accuracy": accuracy}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--address", help="of a running cluster, e.g. auto; default: start Ray here")
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--min-workers", type=int, help="elastic: fewest ranks")
    parser.add_argument("--max-workers", type=int, help="elastic: most ranks")
    parser.add_argument("--use-gpu", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    ray.init(address=args.address)
    images, labels = load_digits(return_X_y=True)  # sent to each node once
    elastic = args.min_workers is not None
    sizes = {"num_workers": args.num_workers}
    if elastic:
        sizes = {"min_workers": args.min_workers, "max_workers": args.max_workers}
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), use_gpu=args.use_gpu, **sizes)
    executor.start()
    results = executor.run(train, (images, labels, args.epochs, args.lr, elastic), callbacks=[print])
    executor.shutdown()
    for result in results:
        print("rank {rank}: loss {loss:.4f}, test accuracy {accuracy:.3f}".format(**result))
