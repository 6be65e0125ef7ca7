# SPDX-License-Identifier: Apache-2.0
"""Trains the same model with 1 and with 2 processes, shows it happening, and sums it up.

    make demo                                     in its own environment
    python scripts/demo.py --epochs 3             in an environment that has horovod, torch and scikit-learn

Writes out/demo.png and out/demo.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any, Dict, List

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
Epoch = Dict[str, Any]


def progress(run: int, epoch: Epoch, live: bool) -> None:
    """One line for an epoch; on a terminal it is drawn over the one before."""
    text = (
        f"loss {epoch['loss']:.3f}  accuracy {epoch['accuracy']:6.1%}  "
        f"{epoch['images_per_second']:7,.0f} images/s"
    )
    name = f"{run} process{'es' if run > 1 else '  '}"
    if not live:
        print(f"  {name}  epoch {epoch['epoch']:2}/{epoch['epochs']}  {text}", flush=True)
        return
    done = round(24 * epoch["epoch"] / epoch["epochs"])
    end = "\n" if epoch["epoch"] == epoch["epochs"] else ""
    print(f"\r  {name}  {'█' * done}{'░' * (24 - done)}  {text} ", end=end, flush=True)


def train(processes: int, options: List[str], live: bool) -> List[Epoch]:
    """The epochs of one training, as they come."""
    command = [
        sys.executable, "-m", "horovod.runner.launch", "-np", str(processes),
        sys.executable, os.path.join(HERE, "demo_train.py"), *options,
    ]  # fmt: skip
    env = dict(os.environ, OMP_NUM_THREADS="1")
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    assert worker.stdout is not None
    epochs, other = [], []
    for line in worker.stdout:
        at = line.find("{")
        try:
            epochs.append(json.loads(line[at:]))
        except ValueError:
            other.append(line)
            continue
        progress(processes, epochs[-1], live)
    if worker.wait() != 0 or not epochs:
        sys.exit(f"demo: training with {processes} processes failed:\n{''.join(other)}")
    return epochs


def rate(epochs: List[Epoch]) -> float:
    """Images per second; the first epoch warms up."""
    return statistics.median(e["images_per_second"] for e in epochs[1:] or epochs)


def summary(runs: Dict[int, List[Epoch]], elapsed: float) -> List[str]:
    """What was seen, in a few lines."""
    one, two = runs[1], runs[2]
    share = statistics.median(e["communication"] for e in two[1:] or two)
    speedup = rate(two) / rate(one)
    lines = [
        f"  loss       {one[0]['loss']:.3f} -> {one[-1]['loss']:.3f} with 1 process, "
        f"{two[0]['loss']:.3f} -> {two[-1]['loss']:.3f} with 2",
        f"  accuracy   {one[0]['accuracy']:.1%} -> {one[-1]['accuracy']:.1%} with 1 process, "
        f"{two[0]['accuracy']:.1%} -> {two[-1]['accuracy']:.1%} with 2",
        f"  speed      {rate(one):,.0f} images/s with 1 process, {rate(two):,.0f} with 2: {speedup:.2f} x",
        f"  exchange   {share:.1%} of the time in reducing gradients, waiting for the other process included",
        f"  trained in {elapsed:.0f} s",
    ]
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    if speedup < 1.3:
        why = "only one core is available" if cores < 2 else f"load average is {load:.1f} on {cores} cores"
        lines.append(f"  2 processes were hardly faster than 1: {why}; the demo gives each process one core.")
    return lines


def plot(runs: Dict[int, List[Epoch]], path: str) -> None:
    """Loss and accuracy over time, and images per second."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (loss, accuracy, speed) = plt.subplots(1, 3, figsize=(12, 3.6), constrained_layout=True)
    colors = {1: "#8a8f98", 2: "#2563eb"}
    for processes, epochs in runs.items():
        seconds = [e["seconds"] for e in epochs]
        label = f"{processes} process{'es' if processes > 1 else ''}"
        style = {"color": colors[processes], "marker": "o", "markersize": 3, "label": label}
        loss.plot(seconds, [e["loss"] for e in epochs], **style)
        accuracy.plot(seconds, [e["accuracy"] for e in epochs], **style)
        bar = speed.bar(label, rate(epochs), color=colors[processes], width=0.6)
        speed.bar_label(bar, fmt="{:,.0f}")
    loss.set(title="Training loss", xlabel="seconds of training", yscale="log")
    accuracy.set(title="Test accuracy", xlabel="seconds of training")
    speed.set(title="Images per second")
    loss.legend()
    for axes in (loss, accuracy, speed):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--out", default=os.path.join(ROOT, "out"))
    args = parser.parse_args()
    live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    print("Training a convolutional network on scikit-learn's 1,797 handwritten digits.")
    print("The same batches of 128 images: first one process takes all of a batch, then two take half each.")
    start = time.monotonic()
    runs = {processes: train(processes, ["--epochs", str(args.epochs)], live) for processes in (1, 2)}
    print("Summary")
    print("\n".join(summary(runs, time.monotonic() - start)))
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "demo.json"), "w") as file:
        json.dump(runs, file, indent=1)
    path = os.path.join(args.out, "demo.png")
    try:
        plot(runs, path)
        print(f"  plot       {os.path.relpath(path)}")
    except ImportError:
        print("  no plot: matplotlib is not installed")
    print("Next: horovodrun -np 2 python examples/pytorch_mnist.py, the whole script in 70 lines.")


if __name__ == "__main__":
    main()
