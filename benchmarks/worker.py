# SPDX-License-Identifier: Apache-2.0
"""One rank of one contender. Started by a team; does what it is told, one command at a time.

    python -m benchmarks.worker FILE:CLASS        e.g. horovod_numpy:InPlace

Every rank holds a Unix socket to the driver (HVD_BENCH_SOCKET) and sleeps on it between commands, so that a
contender which polls its network cannot take time from the one that is being measured. This runs in
environments that hold only NumPy and one MPI: it imports nothing of ours except in the adapters that need it.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import time
import traceback
from typing import Any, Callable, Dict, List

from benchmarks.contenders.adapter import Adapter

Seconds = Dict[str, List[float]]  # "repetitions" and "calls", as in rows.Turn


class Worker:
    """Executes commands; each returns seconds."""

    def __init__(self, contender: Adapter) -> None:
        self.contender = contender
        self._count = 0
        self._buffer: Any = None
        self._tensors: Dict[str, List[Any]] = {}
        self._trainers: Dict[str, Callable[[], None]] = {}

    def allreduce(self, bytes: int, reps: int, inner: int) -> Seconds:
        """A blocking allreduce, `inner` of them in a row."""
        data = self._data(bytes)
        return self._timed(lambda: self.contender.allreduce(data), reps, inner)

    def barrier(self, reps: int, inner: int) -> Seconds:
        """A barrier, `inner` of them in a row."""
        return self._timed(self.contender.barrier, reps, inner)

    def many(self, shapes: List[int], reps: int) -> Seconds:
        """All tensors of a step: a call each, then waited for, or the contender's own way."""
        tensors = self._some(shapes)
        return self._timed(lambda: self.contender.many(tensors), reps, 1)

    def in_and_out(self, shapes: List[int], reps: int) -> Seconds:
        """All tensors of a step as arguments and results of a compiled program."""
        tensors = self._some(shapes)
        return self._timed(lambda: self.contender.in_and_out(tensors), reps, 1)

    def blocking(self, shapes: List[int], reps: int) -> Seconds:
        """All tensors of a step, each waited for before the next."""
        tensors = self._some(shapes)

        def step() -> None:
            for i, tensor in enumerate(tensors):
                self.contender.allreduce(tensor, f"g{i}")

        return self._timed(step, reps, 1)

    def busy(self, bytes: int, reps: int) -> Seconds:
        """An asynchronous allreduce while the main thread computes in Python and looks now and then."""
        data = self._data(bytes)

        def call() -> None:
            handle = self.contender.start(data, "busy")
            x = 0
            while not self.contender.done(handle):
                for i in range(100):  # about 3 us
                    x += i
            self.contender.finish([handle])

        return self._timed(call, reps, 1)

    def train(self, model: str, reps: int, steps: int = 1) -> Seconds:
        """Training steps, so many for one repetition."""
        if model not in self._trainers:
            self._trainers = {model: self.contender.trainer(model)}
        step = self._trainers[model]

        def repetition() -> None:
            for _ in range(steps):
                step()

        return self._timed(repetition, reps, 1)

    def gradients(self, model: str, reps: int) -> Seconds:
        """All gradients of a model, with nothing to compute."""
        from benchmarks.contenders.torch_models import network

        return self.many([parameter.numel() for parameter in network(model).parameters()], reps)

    def hooks(self, model: str, reps: int) -> Seconds:
        """Processor time of a gradient hook."""
        times = [self.contender.hook_seconds(model) for _ in range(reps)]
        return {"repetitions": times, "calls": times}

    def observed(self, what: str, loops: int, reps: int, inner: int, clock: str) -> Seconds:
        """A little work and a small allreduce, `inner` times, under an observer; wall or processor time."""
        data = self._data(4)

        def call() -> None:
            for _ in range(loops):
                pass
            self.contender.allreduce(data)

        stop = self.contender.observe(what)
        try:
            if clock == "wall":
                return self._timed(call, reps, inner)
            times = []
            for _ in range(reps):
                self.contender.barrier()
                start = time.process_time()
                for _ in range(inner):
                    call()
                times.append((time.process_time() - start) / inner)
            return {"repetitions": times, "calls": times}
        finally:
            stop()

    def check(self) -> Seconds:
        """That the contender really adds: the sum of ones is the size."""
        result = self.contender.allreduce(self.contender.buffer(1000))
        if float(result[0]) != self.contender.size or float(result[-1]) != self.contender.size:
            raise AssertionError(f"allreduce of ones on {self.contender.size} ranks gave {result[0]}")
        return {"repetitions": [], "calls": []}

    def _data(self, bytes: int) -> Any:
        count = max(1, bytes // 4)
        if count != self._count:
            self._buffer = None  # free the old one first
            self._count, self._buffer = count, self.contender.buffer(count)
        return self._buffer

    def _some(self, shapes: List[int]) -> List[Any]:
        key = json.dumps(shapes)
        if key not in self._tensors:
            self._tensors = {key: [self.contender.buffer(n) for n in shapes]}
        return self._tensors[key]

    def _timed(self, call: Callable[[], Any], reps: int, inner: int) -> Seconds:
        repetitions, calls, clock = [], [], time.perf_counter
        for _ in range(reps):
            stamps: List[float] = []
            note = stamps.append
            self.contender.barrier()
            # Ranks that have just been woken are not yet in step. A lone call is measured as it comes.
            for _ in range((inner + 9) // 10 if inner > 1 else 0):
                call()
            note(clock())
            for _ in range(inner):
                call()
                note(clock())
            repetitions.append((stamps[-1] - stamps[0]) / inner)
            calls += [after - before for before, after in zip(stamps, stamps[1:])]
        return {"repetitions": repetitions, "calls": calls}


def main() -> None:
    """Connects, then obeys until told to quit."""
    file, name = sys.argv[1].split(":")
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(os.environ["HVD_BENCH_SOCKET"])
    stream = channel.makefile("rw")
    contender: Adapter = getattr(importlib.import_module(f"benchmarks.contenders.{file}"), name)()
    worker = Worker(contender)
    print(json.dumps({"rank": contender.rank, "size": contender.size}), file=stream, flush=True)
    for line in stream:
        command = json.loads(line)
        do = command.pop("do")
        if do == "quit":
            break
        try:
            answer = getattr(worker, do)(**command)
        except Exception:
            answer = {"error": traceback.format_exc(limit=-4)}
        print(json.dumps(answer), file=stream, flush=True)
    contender.close()


if __name__ == "__main__":
    main()
