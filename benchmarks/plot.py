# SPDX-License-Identifier: Apache-2.0
"""PNG pictures of the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

COLOURS = {
    "horovod": "#c2410c",
    "gloo": "#2563eb",
    "openmpi": "#15803d",
    "mpich": "#7c3aed",
    "memcpy": "#9ca3af",
}


def allreduce(result: Dict[str, Any], path: Path) -> None:
    """Time against size, one panel for each number of ranks, the middle half of the samples as a band."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(result), figsize=(6.2 * len(result), 4.6), squeeze=False, sharey=True)
    for axis, (ranks, rows) in zip(axes[0], result.items()):
        names = next(iter(rows.values()))
        for name in names:
            points = [(int(size), row[name]) for size, row in rows.items() if name in row]
            sizes = [size for size, _ in points]
            style = {"color": COLOURS.get(name), "lw": 2.4 if name == "horovod" else 1.4}
            axis.plot(sizes, [p["median_us"] for _, p in points], marker="o", ms=3.5, label=name, **style)
            low, high = [p["p25_us"] for _, p in points], [p["p75_us"] for _, p in points]
            axis.fill_between(sizes, low, high, color=COLOURS.get(name), alpha=0.15, lw=0)
        axis.set(xscale="log", yscale="log", title=f"allreduce, {ranks} ranks on one host", xlabel="bytes")
        axis.grid(True, which="major", alpha=0.3)
    axes[0][0].set_ylabel("microseconds, median and middle half")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def coordinator(result: Dict[str, Any], path: Path) -> None:
    """The coordinator's time and messages as the job grows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [row for row in result["rows"] if row["ranks"] != row["hosts"]]
    ranks = [row["ranks"] for row in rows]
    figure, left = plt.subplots(figsize=(6.2, 4.2))
    left.plot(ranks, [row["step_us"] for row in rows], marker="o", color=COLOURS["horovod"])
    left.set(xscale="log", xlabel="ranks, 8 a host", ylabel="microseconds a step", ylim=(0, None))
    left.set_title(f"coordinator, {rows[0]['tensors']} tensors a step")
    right = left.twinx()
    messages = [row["messages_in"] + row["messages_out"] for row in rows]
    right.plot(ranks, messages, marker="s", ls="--", color=COLOURS["gloo"])
    right.set(ylabel="messages in and out (dashed)", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
