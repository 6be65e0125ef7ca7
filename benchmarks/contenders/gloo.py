# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on Gloo: plain, in buckets, and as DistributedDataParallel."""

from __future__ import annotations

from typing import Any, Callable, List

from benchmarks.contenders.adapter import Adapter
from benchmarks.contenders.torch_alone import sgd, stepper

BUCKET_BYTES = 25 << 20


class Gloo(Adapter):
    """all_reduce"""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.torch, self.dist = torch, dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def buffer(self, count: int) -> Any:
        return self.torch.ones(count)

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        self.dist.all_reduce(data)
        return data

    def start(self, data: Any, name: str) -> Any:
        return self.dist.all_reduce(data, async_op=True)

    def done(self, handle: Any) -> bool:
        return bool(handle.is_completed())

    def finish(self, handles: List[Any]) -> None:
        for handle in handles:
            handle.wait()

    def barrier(self) -> None:
        self.dist.barrier()

    def close(self) -> None:
        self.dist.destroy_process_group()


class Buckets(Gloo):
    """Tensors copied into buckets of 25 MiB first, as DistributedDataParallel does."""

    def many(self, tensors: List[Any]) -> None:
        bucket: List[Any] = []
        for i, tensor in enumerate(tensors):
            bucket.append(tensor)
            if i + 1 == len(tensors) or sum(t.numel() for t in bucket) * 4 >= BUCKET_BYTES:
                flat = self.torch.cat(bucket)
                self.dist.all_reduce(flat)
                for target, part in zip(bucket, flat.split([t.numel() for t in bucket])):
                    target.copy_(part)
                bucket = []


class DataParallel(Gloo):
    """Training with DistributedDataParallel."""

    def trainer(self, model: str) -> Callable[[], None]:
        from benchmarks.contenders.torch_models import build

        module, x, y = build(model)
        wrapped = self.torch.nn.parallel.DistributedDataParallel(module)
        return stepper(wrapped, sgd(module), x, y)
