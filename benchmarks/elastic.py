# SPDX-License-Identifier: Apache-2.0
"""How long a job is held up by a death, and by a newcomer; and what a commit costs.

    python benchmarks/elastic.py [--repeat 5] [--ranks 4]

recovery   from kill -9 of one rank to the next finished step, and to the first one of who takes its place:
           horovodrun beside torchrun's elastic agent (--max-restarts) and, where .venv-torchft is (`make
           bench-elastic` makes it), torchft; same model, same machine, one after the other
joining    from the discovery script naming one more slot to the newcomer's first step, less its own start-up
           (interpreter and imports, until it calls hvd.init)
commit     TorchState.commit of a model of 100 MB, beside the step it follows
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKER = os.path.join(ROOT, "benchmarks", "elastic_worker.py")
TORCHFT = os.path.join(ROOT, ".venv-torchft", "bin", "python")
Command = Callable[[str, int], List[str]]


class Training:
    """A job that says what it does."""

    def __init__(self, command: List[str]) -> None:
        env = dict(os.environ, PYTHONPATH=ROOT, OMP_NUM_THREADS="1")
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._said: queue.SimpleQueue[Dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            at = line.find("{")
            if at >= 0:
                self._said.put(json.loads(line[at:]))

    def next_step(self) -> Dict[str, Any]:
        """What a rank said after its step."""
        return self._said.get(timeout=120)

    def processes(self, size: int, steps: int = 10) -> List[Tuple[int, int]]:
        """Rank and process of each, once all of a world of that size have done some steps."""
        done: Dict[Tuple[int, int], int] = {}
        while len(done) < size or min(done.values()) < steps:
            said = self.next_step()
            if said["size"] == size:
                key = (said["rank"], said["pid"])
                done[key] = done.get(key, 0) + 1
        return list(done)

    def end(self, folder: str) -> None:
        """Lets it finish."""
        open(f"{folder}/enough", "w").close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def training(make: Command, ranks: int) -> Iterator[Tuple[Training, str]]:
    """A job and its folder; it ends with the block, also by an exception."""
    with tempfile.TemporaryDirectory() as folder:
        job = Training(make(folder, ranks))
        try:
            yield job, folder
        finally:
            job.end(folder)


def horovodrun(folder: str, ranks: int) -> List[str]:
    """Our job; the hosts are what FOLDER/hosts says."""
    with open(f"{folder}/hosts", "w", encoding="utf-8") as file:
        file.write(f"localhost:{ranks}\n")
    return [
        sys.executable, "-m", "horovod.runner.launch", "-np", str(ranks), "--min-np", "1",
        "--host-discovery-script", f"cat {folder}/hosts", "--elastic-events", f"{folder}/events",
        sys.executable, WORKER, "hvd", folder,
    ]  # fmt: skip


def torchrun(folder: str, ranks: int) -> List[str]:
    """torchrun's elastic agent; looks at its workers ten times a second."""
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
        "--max-restarts", "3", "--monitor-interval", "0.1", WORKER, "ddp", folder,
    ]  # fmt: skip


def torchft(patience_ms: int) -> Command:
    """torchft's lighthouse and replicas; a replica that is silent for so long is dead to the others."""

    def command(folder: str, ranks: int) -> List[str]:
        script = os.path.join(ROOT, "benchmarks", "elastic_torchft.py")
        return [TORCHFT, script, folder, str(ranks), str(patience_ms)]

    return command


def contenders() -> Iterator[Tuple[str, Command]]:
    """Who is measured here."""
    yield "horovodrun", horovodrun
    yield "torchrun", torchrun
    if os.path.exists(TORCHFT):
        yield "torchft", torchft(5000)  # its default for heartbeats; for Gloo it is 60 s
        yield "torchft, 1 s", torchft(1000)


def recovery(make: Command, ranks: int) -> Tuple[float, float]:
    """Seconds from the death of a rank to the next finished step, and to the first one of a new process."""
    with training(make, ranks) as (job, _):
        world = dict(job.processes(ranks))
        os.kill(world[ranks - 1], signal.SIGKILL)
        killed = time.time()
        known = set(world.values())
        recovered = 0.0
        while True:
            said = job.next_step()
            is_new = said["pid"] not in known
            # A step of the broken world may be reported after the kill.
            if not recovered and said["time"] > killed and (said["size"] < ranks or is_new):
                recovered = said["time"] - killed
            if is_new:
                return recovered, said["time"] - killed


def joining(ranks: int) -> Tuple[float, float]:
    """Seconds from the naming of one more slot to the newcomer's first step; and of its own start-up."""
    with training(horovodrun, ranks) as (job, folder):
        known = {pid for _, pid in job.processes(ranks)}
        with open(f"{folder}/hosts.new", "w", encoding="utf-8") as file:
            file.write(f"localhost:{ranks + 1}\n")
        os.replace(f"{folder}/hosts.new", f"{folder}/hosts")
        while True:
            said = job.next_step()
            if said["pid"] not in known:
                return said["time"] - _named(f"{folder}/events"), said["startup"]


def _named(events: str) -> float:
    """When the discovery script, which is asked once a second, last had news."""
    with open(events, encoding="utf-8") as file:
        return max(float(one["time"]) for one in map(json.loads, file) if one["event"] == "hosts")


def commit() -> Tuple[float, float]:
    """Milliseconds of a step of a 100 MB model with a batch of 64, and of the commit after it."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(2236, 2236) for _ in range(5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    batch = torch.ones(64, 2236)
    steps, commits = [], []
    for _ in range(12):
        start = time.perf_counter()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        middle = time.perf_counter()
        state.commit()
        steps.append(middle - start)
        commits.append(time.perf_counter() - middle)
    hvd.shutdown()
    return 1e3 * statistics.median(steps[2:]), 1e3 * statistics.median(commits[2:])


def main() -> None:
    """Measures everything and prints it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=4)
    args = parser.parse_args()
    for name, make in contenders():
        times = sorted(recovery(make, args.ranks) for _ in range(args.repeat))
        shown = ", ".join(f"{one:.2f}" for one, _ in times)
        median, replaced = (statistics.median(column) for column in zip(*times))
        more = f"({shown}); replaced after {replaced:.2f} s"
        print(f"recovery  {name:<12}  median {median:.2f} s   {more}", flush=True)
    found = [joining(args.ranks - 1) for _ in range(args.repeat)]
    extra = sorted(total - startup for total, startup in found)
    startup = statistics.median(one for _, one in found)
    more = f"{statistics.median(extra):.2f} s more (at most {extra[-1]:.2f})"
    print(f"joining   own start-up {startup:.2f} s, and {more}", flush=True)
    step, cost = commit()
    print(f"commit    100 MB: {cost:.1f} ms after a step of {step:.0f} ms: {100 * cost / step:.1f} %")


if __name__ == "__main__":
    main()
