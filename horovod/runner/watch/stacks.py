# SPDX-License-Identifier: Apache-2.0
"""What each rank does, in words and with its Python stacks: for `horovodrun --stacks` and SIGQUIT."""

from __future__ import annotations

from typing import Any, Mapping

# A stack older than this is not an answer to what was asked just now.
_OLD_SECONDS = 4.0


def report(view: Mapping[str, Any]) -> str:
    """A view (collector.view) in which the ranks' stacks are, as text for a terminal."""
    parts = []
    for row in view["ranks"]:
        who = f"rank {row['rank']}" if row["rank"] >= 0 else f"worker {row['name']}"
        process = f" (process {row['pid']})" if row["pid"] else ""
        parts.append(f"---- {who} on {row['host']}{process}: {doing(row)}")
        if row.get("stack"):
            age = view["now"] - row["stack_time"]
            if age > _OLD_SECONDS:
                parts.append(f"It does not answer; {age:.0f} s ago it was here:")
            parts.append(str(row["stack"]).rstrip())
        parts.append("")
    return "\n".join(parts)


def doing(row: Mapping[str, Any]) -> str:
    """What a rank does, in a few words: "waiting for rank 3 in ALLREDUCE conv1, for 1.2 s"."""
    words = [row["state"], row["why"]]
    if row["tensor"]:
        words += ["in", row["kind"], row["tensor"]]
    text = " ".join(word for word in words if word)
    if row["since"] is not None and row["state"] in ("waiting", "communicating", "computing"):
        text += f", for {row['since']:.1f} s"
    return text
