# SPDX-License-Identifier: Apache-2.0
"""One rank of one contender. Started by harness.Team; does what it is told, one command at a time.

    worker.py CONTENDER        e.g. worker.py horovod

Every rank holds a Unix socket to the driver (HVD_BENCH_SOCKET) and sleeps on it between commands, so that a
contender which polls its network cannot take time from the one that is being measured. This file runs in
environments that hold only NumPy and one MPI: it imports nothing of ours except in the adapters that need it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any, Callable, Dict, List

import numpy as np


class Horovod:
    """horovod.numpy."""

    def __init__(self) -> None:
        import horovod.numpy as hvd

        hvd.init()
        self.hvd = hvd
        self.rank, self.size = hvd.rank(), hvd.size()

    def buffer(self, count: int) -> Any:
        return np.ones(count, np.float32)

    def allreduce(self, data: Any) -> None:
        self.hvd.allreduce_(data, op=self.hvd.Sum, name="bench")

    def start(self, data: Any, name: str) -> Any:
        return self.hvd.allreduce_async_(data, op=self.hvd.Sum, name=name)

    def done(self, handle: Any) -> bool:
        return bool(self.hvd.poll(handle))

    def finish(self, handles: List[Any]) -> None:
        for handle in handles:
            self.hvd.synchronize(handle)

    def barrier(self) -> None:
        self.hvd.barrier()

    def close(self) -> None:
        self.hvd.shutdown()


class HorovodGrouped(Horovod):
    """The same with all tensors submitted in one call."""

    def many(self, tensors: List[Any]) -> None:
        self.hvd.grouped_allreduce_(tensors, op=self.hvd.Sum, name="bench")


class HorovodTorch(Horovod):
    """horovod.torch on CPU tensors."""

    def __init__(self) -> None:
        import torch

        import horovod.torch as hvd

        torch.set_num_threads(1)
        hvd.init()
        self.hvd, self.torch = hvd, torch
        self.rank, self.size = hvd.rank(), hvd.size()

    def buffer(self, count: int) -> Any:
        return self.torch.ones(count)


class Gloo:
    """torch.distributed with the Gloo backend."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.torch, self.dist = torch, dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def buffer(self, count: int) -> Any:
        return self.torch.ones(count)

    def allreduce(self, data: Any) -> None:
        self.dist.all_reduce(data)

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


class GlooBuckets(Gloo):
    """Tensors copied into buckets of 25 MiB first, as DistributedDataParallel does."""

    def many(self, tensors: List[Any]) -> None:
        bucket: List[Any] = []
        for i, tensor in enumerate(tensors):
            bucket.append(tensor)
            if i + 1 == len(tensors) or sum(t.numel() for t in bucket) * 4 >= 25 << 20:
                flat = self.torch.cat(bucket)
                self.dist.all_reduce(flat)
                for target, part in zip(bucket, flat.split([t.numel() for t in bucket])):
                    target.copy_(part)
                bucket = []


class Mpi:
    """mpi4py over the MPI of its environment."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi, self.comm = MPI, MPI.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size

    def buffer(self, count: int) -> Any:
        return np.ones(count, np.float32)

    def allreduce(self, data: Any) -> None:
        self.comm.Allreduce(self.mpi.IN_PLACE, data, self.mpi.SUM)

    def start(self, data: Any, name: str) -> Any:
        return self.comm.Iallreduce(self.mpi.IN_PLACE, data, self.mpi.SUM)

    def done(self, handle: Any) -> bool:
        return bool(handle.Test())

    def finish(self, handles: List[Any]) -> None:
        self.mpi.Request.Waitall(handles)

    def barrier(self) -> None:
        self.comm.Barrier()

    def close(self) -> None:
        pass


class Memcpy:
    """Every rank copies its own buffer: what the memory gives."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.target = np.zeros(0, np.float32)

    def buffer(self, count: int) -> Any:
        self.target = np.zeros(count, np.float32)
        self.target.fill(1)
        return np.full(count, self.size, np.float32)

    def allreduce(self, data: Any) -> None:
        np.copyto(self.target, data)

    def barrier(self) -> None:
        pass

    def close(self) -> None:
        pass


CONTENDERS: Dict[str, Callable[[], Any]] = {
    "horovod": Horovod,
    "horovod_grouped": HorovodGrouped,
    "horovod_torch": HorovodTorch,
    "gloo": Gloo,
    "gloo_buckets": GlooBuckets,
    "openmpi": Mpi,
    "mpich": Mpi,
    "memcpy": Memcpy,
}


class Worker:
    """Executes commands; each returns seconds, one number a repetition."""

    def __init__(self, contender: Any) -> None:
        self.contender = contender
        self.buffers: Dict[int, Any] = {}
        self.tensors: Dict[str, List[Any]] = {}

    def allreduce(self, bytes: int, reps: int, inner: int) -> List[float]:
        """A blocking allreduce in place, `inner` of them in a row, timed together."""
        count = max(1, bytes // 4)
        data = self.buffers.get(count)
        if data is None:
            self.buffers = {count: self.contender.buffer(count)}
            data = self.buffers[count]
            self.contender.allreduce(data)
        times = []
        for _ in range(reps):
            self.contender.barrier()
            start = time.perf_counter()
            for _ in range(inner):
                self.contender.allreduce(data)
            times.append((time.perf_counter() - start) / inner)
        return times

    def many(self, shapes: List[int], reps: int) -> List[float]:
        """All tensors of a step: submitted one by one, then waited for (or the contender's own way)."""
        key = json.dumps(shapes)
        if key not in self.tensors:
            self.tensors = {key: [self.contender.buffer(n) for n in shapes]}
        tensors = self.tensors[key]
        own_way = getattr(self.contender, "many", None)
        times = []
        for _ in range(reps + 1):  # the first one warms up
            self.contender.barrier()
            start = time.perf_counter()
            if own_way is not None:
                own_way(tensors)
            else:
                self.contender.finish([self.contender.start(t, f"g{i}") for i, t in enumerate(tensors)])
            times.append(time.perf_counter() - start)
        return times[1:]

    def busy(self, bytes: int, reps: int) -> List[float]:
        """An asynchronous allreduce while the main thread computes in Python and looks now and then."""
        data = self.contender.buffer(max(1, bytes // 4))
        times = []
        for _ in range(reps + 1):
            self.contender.barrier()
            start = time.perf_counter()
            handle = self.contender.start(data, "busy")
            x = 0
            while not self.contender.done(handle):
                for i in range(100):  # about 3 us
                    x += i
            times.append(time.perf_counter() - start)
            self.contender.finish([handle])
        return times[1:]

    def check(self) -> List[float]:
        """That the contender really adds: the sum of ones is the size."""
        data = self.contender.buffer(1000)
        if not isinstance(self.contender, Memcpy):
            self.contender.allreduce(data)
        if float(data[0]) != self.contender.size or float(data[-1]) != self.contender.size:
            raise AssertionError(f"allreduce of ones on {self.contender.size} ranks gave {data[0]}")
        return []


def main() -> None:
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(os.environ["HVD_BENCH_SOCKET"])
    stream = channel.makefile("rw")
    contender = CONTENDERS[sys.argv[1]]()
    worker = Worker(contender)
    print(json.dumps({"rank": contender.rank, "size": contender.size}), file=stream, flush=True)
    for line in stream:
        command = json.loads(line)
        name = command.pop("do")
        if name == "quit":
            break
        print(json.dumps(getattr(worker, name)(**command)), file=stream, flush=True)
    contender.close()


if __name__ == "__main__":
    main()
