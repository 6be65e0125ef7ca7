# SPDX-License-Identifier: Apache-2.0
"""Contenders as teams of processes that take turns, and what is made of their numbers.

All teams of a comparison are started first and sleep. A measurement then goes round: a few repetitions of
the first team, a few of the next, and again, so that a machine that slows down slows all of them. A
repetition counts with its slowest rank. Shown are medians with the middle half of all repetitions.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from benchmarks.environments import ROOT, mpi_environment

WORKER = str(ROOT / "benchmarks" / "worker.py")
START_TIMEOUT = 120.0
COMMAND_TIMEOUT = 300.0


class Team:
    """The ranks of one contender, connected and asleep."""

    def __init__(
        self, name: str, size: int, commands: Sequence[Sequence[str]], env: Mapping[str, str]
    ) -> None:
        self.name, self.size = name, size
        self._directory = tempfile.TemporaryDirectory(prefix="hvd-bench-")
        path = os.path.join(self._directory.name, "socket")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(size)
        listener.settimeout(1.0)
        self._log = open(os.path.join(self._directory.name, "log"), "w+")
        self._processes = [
            subprocess.Popen(
                list(command),
                env={**os.environ, **env, "HVD_BENCH_SOCKET": path},
                stdout=self._log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            for command in commands
        ]
        self._streams: List[Any] = []
        try:
            self._gather(listener)
        except Exception:
            self.close()
            raise
        finally:
            listener.close()
        self.command("check")
        # Not with fewer cores than ranks: who waits by polling would then keep the others from running.
        if os.environ.get("HVD_BENCH_REALTIME") and size <= (os.cpu_count() or 1):
            for process in self._processes:
                _prefer(process.pid)

    def _gather(self, listener: socket.socket) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while len(self._streams) < self.size:
            try:
                channel, _ = listener.accept()
            except socket.timeout:
                failed = any(p.poll() not in (None, 0) for p in self._processes)
                if failed or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} did not start:\n{self.log()}") from None
                continue
            channel.settimeout(COMMAND_TIMEOUT)
            self._streams.append(channel.makefile("rw"))
        for stream in self._streams:
            self._read(stream)

    def _read(self, stream: Any) -> Any:
        line = stream.readline()
        if not line:
            raise RuntimeError(f"a rank of {self.name} ended:\n{self.log()}")
        return json.loads(line)

    def command(self, do: str, **arguments: Any) -> List[float]:
        """Runs a command on all ranks at once; the slowest rank of every repetition."""
        for stream in self._streams:
            print(json.dumps({"do": do, **arguments}), file=stream, flush=True)
        per_rank = [self._read(stream) for stream in self._streams]
        return [max(times) for times in zip(*per_rank)]

    def log(self) -> str:
        self._log.flush()
        self._log.seek(0)
        return self._log.read()[-3000:]

    def close(self) -> None:
        for stream in self._streams:
            try:
                print(json.dumps({"do": "quit"}), file=stream, flush=True)
            except OSError:
                pass
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
        self._log.close()
        self._directory.cleanup()


def _prefer(pid: int) -> None:
    """Real-time scheduling for a process, its threads and its children: ahead of everything else."""
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            os.sched_setscheduler(int(task), os.SCHED_RR, os.sched_param(1))
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        except (ProcessLookupError, FileNotFoundError):
            continue
        for child in children:
            _prefer(int(child))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_team(name: str, size: int, contender: Optional[str] = None) -> Optional[Team]:
    """Starts a contender's ranks on this machine; None (with a reason on stderr) if it is not to be had."""
    contender = contender or name
    worker = [WORKER, contender]
    here = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    if contender in ("openmpi", "mpich"):
        place = mpi_environment(contender)
        if place is None:
            return None
        command = [str(place / "mpirun"), "-n", str(size)]
        if contender == "openmpi":
            command += ["--oversubscribe", "--bind-to", "none"]
        env = {
            "PATH": f"{place}:{os.environ['PATH']}",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PYTHONPATH": "",
            "OMP_NUM_THREADS": "1",
        }
        return Team(name, size, [[*command, str(place / "python"), *worker]], env)
    if contender.startswith("horovod"):
        command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(size), sys.executable, *worker]
        return Team(name, size, [command], here)
    port = str(_free_port())
    ranks = [
        [
            "env",
            f"RANK={rank}",
            f"WORLD_SIZE={size}",
            "MASTER_ADDR=127.0.0.1",
            f"MASTER_PORT={port}",
            sys.executable,
            *worker,
        ]
        for rank in range(size)
    ]
    return Team(name, size, ranks, here)


def start_teams(names: Sequence[str], size: int) -> Dict[str, Team]:
    """All contenders that can be had."""
    teams: Dict[str, Team] = {}
    for name in names:
        try:
            team = start_team(name, size)
        except RuntimeError as error:
            print(f"benchmarks: without {name}: {error}", file=sys.stderr)
            continue
        if team is not None:
            teams[name] = team
    return teams


def take_turns(
    teams: Mapping[str, Team], rounds: int, do: str, **arguments: Any
) -> Dict[str, Dict[str, float]]:
    """The same command on every team, round after round; statistics by team."""
    times: Dict[str, List[float]] = {name: [] for name in teams}
    for team in teams.values():  # caches, first touches, cached descriptions
        team.command(do, **{**arguments, "reps": 1})
    for turn in range(rounds):
        order = list(teams)
        order = order[turn % len(order) :] + order[: turn % len(order)]
        for name in order:
            times[name] += teams[name].command(do, **arguments)
    return {name: summary(samples) for name, samples in times.items()}


def summary(seconds: Sequence[float]) -> Dict[str, float]:
    """Median and middle half, in microseconds."""
    values = sorted(s * 1e6 for s in seconds)
    low, high = values[len(values) // 4], values[-1 - len(values) // 4]
    return {"median_us": statistics.median(values), "p25_us": low, "p75_us": high, "samples": len(values)}


# ---------------------------------------------------------------------------------------- output --


def size_text(size: int) -> str:
    """4 B, 64 KiB, 128 MiB"""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(us: float) -> str:
    """3.1 us, 4.52 ms, 1.20 s"""
    if us < 1000:
        return f"{us:.1f} us"
    return f"{us / 1000:.2f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


def print_table(title: str, label: str, rows: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """rows[label][contender] = summary. A contender's ratio is its time over horovod's."""
    print(f"\n{title}")
    names: List[str] = []
    for row in rows.values():
        names += [n for n in row if n not in names]
    print(f"  {label:>16} " + " ".join(f"{name:>27}" for name in names))
    for key, row in rows.items():
        ours = row["horovod"]["median_us"] if "horovod" in row else None
        cells = []
        for name in names:
            if name not in row:
                cells.append(f"{'-':>27}")
                continue
            s = row[name]
            half = (s["p75_us"] - s["p25_us"]) / 2 / s["median_us"] * 100 if s["median_us"] else 0.0
            ratio = f" x{s['median_us'] / ours:.2f}" if ours and name != "horovod" else ""
            cells.append(f"{time_text(s['median_us']) + f' ±{half:.0f}%' + ratio:>27}")
        print(f"  {key:>16} " + " ".join(cells), flush=True)


def save(name: str, result: Any, out: Path) -> None:
    """out/NAME.json"""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


def machine() -> Dict[str, Any]:
    """What the numbers were measured on."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {"cpu": model, "cores": os.cpu_count(), "load": os.getloadavg()[0], "run": secrets.token_hex(4)}
