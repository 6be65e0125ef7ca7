# SPDX-License-Identifier: Apache-2.0
"""Rows per CPU second: horovod.data beside Hugging Face datasets (streaming) and Ray Data, on the same files.

    make bench-spark
    .venv-data-bench/bin/python benchmarks/data_reader.py [--rows 400000] [--json out.json]

Batches of NumPy arrays from a folder of Parquet files, 32 floats and a label a row, with and without a
shuffle of 65,536 rows. Each reader runs in a process of its own, two epochs after one that is not counted, in
turns with the others. CPU seconds are those of the process and all it has started.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, Iterator, List

BATCH, WINDOW, EPOCHS = 256, 1 << 16, 2
GOAL = 2.0  # times as many rows as the others
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def write_files(folder: str, rows: int, files: int = 8) -> None:
    """The dataset."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    for number in range(files):
        count = rows // files
        x = rng.standard_normal((count, 32)).astype(np.float32)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 32).cast(pa.list_(pa.float32()))
        table = pa.table({"x": lists, "y": rng.integers(0, 10, count)})
        pq.write_table(table, os.path.join(folder, f"part-{number}.parquet"), row_group_size=8_000)


def horovod(folder: str, shuffle: bool) -> Callable[[], Iterator[Dict[str, Any]]]:
    """Ours."""
    from horovod.data import ParquetReader

    reader = ParquetReader(folder, batch_size=BATCH, shuffle=shuffle, window=WINDOW)
    return lambda: iter(reader)


def datasets(folder: str, shuffle: bool) -> Callable[[], Iterator[Dict[str, Any]]]:
    """Hugging Face datasets, streaming."""
    from datasets import load_dataset

    files = sorted(os.path.join(folder, name) for name in os.listdir(folder))
    data = load_dataset("parquet", data_files=files, split="train", streaming=True).with_format("numpy")
    if shuffle:
        data = data.shuffle(seed=0, buffer_size=WINDOW)
    return lambda: data.iter(batch_size=BATCH)


def ray(folder: str, shuffle: bool) -> Callable[[], Iterator[Dict[str, Any]]]:
    """Ray Data."""
    import logging

    import ray.data

    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    data = ray.data.read_parquet(folder, shuffle="files" if shuffle else None)
    window = {"local_shuffle_buffer_size": WINDOW} if shuffle else {}
    return lambda: iter(data.iter_batches(batch_size=BATCH, batch_format="numpy", **window))


READERS = {"horovod": horovod, "datasets": datasets, "ray": ray}


def cpu_seconds() -> float:
    """Of this process and all it has started, the ended ones too."""
    import psutil

    me = psutil.Process()
    times = [me.cpu_times()]
    for child in me.children(recursive=True):
        try:
            times.append(child.cpu_times())
        except psutil.Error:
            pass
    ended = os.times()
    return float(sum(t.user + t.system for t in times) + ended.children_user + ended.children_system)


def measure(name: str, folder: str, shuffle: bool) -> Dict[str, float]:
    """One reader, in this process."""
    epoch = READERS[name](folder, shuffle)
    rows = 0
    for number in range(EPOCHS + 1):
        if number == 1:
            rows, began = 0, cpu_seconds()
        for batch in epoch():
            rows += len(batch["y"])
            assert len(batch["x"]) == len(batch["y"])
    return {"rows": rows, "cpu_s": cpu_seconds() - began}


def in_turns(folder: str, turns: int) -> List[Dict[str, Any]]:
    """A row for each shuffle: the best rows per CPU second of every reader."""
    table = []
    for shuffle in (True, False):
        best: Dict[str, float] = {}
        for _ in range(turns):
            for name in READERS:
                command = [sys.executable, __file__, "--one", name, "--folder", folder]
                command += ["--shuffle"] if shuffle else []
                env = {**os.environ, "PYTHONPATH": ROOT, "RAY_AUTH_MODE": "disabled"}
                done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
                found = json.loads(done.stdout.splitlines()[-1])
                best[name] = max(best.get(name, 0.0), found["rows"] / found["cpu_s"])
        table.append({"shuffle": shuffle, **best})
    return table


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--json", help="where to write the table")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--shuffle", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.folder, args.shuffle)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, args.rows)
        table = in_turns(folder, args.turns)
    for row in table:
        ours = row["horovod"]
        cells = [f"{name} {row[name]:,.0f} ({ours / row[name]:.1f}x)" for name in READERS]
        worst = min(ours / row[name] for name in READERS if name != "horovod")
        goal = f"(goal: {GOAL:g}x) {'reached' if worst >= GOAL else 'MISSED'}"
        order = "shuffled" if row["shuffle"] else "in order"
        print(f"rows per CPU second, {order}: {', '.join(cells)} {goal}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
