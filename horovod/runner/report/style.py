# SPDX-License-Identifier: Apache-2.0
"""How the page looks, on a phone as on a screen, in light and dark."""

from __future__ import annotations

STYLE = """
:root { --ink: #1f2933; --paper: #fff; --soft: #e4e7eb; --compute: #7aa874; --wait: #d9534f;
  --communication: #4a7ab5; --job: #4a7ab5; --check: #c58f2d; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --paper: #1b1f24; --soft: #3a424c; --compute: #6d9a68; --wait: #c9504c;
    --communication: #5b8cc9; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 900px;
  margin: 0 auto; padding: 1em; }
h1 { font-size: 1.5em; margin-bottom: 0; } h2 { font-size: 1.15em; margin-top: 2em; } h3 { font-size: 1em; }
svg { width: 100%; min-width: 600px; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg text.on { fill: #fff; } svg .grid { stroke: var(--soft); }
svg .line { fill: none; stroke-width: 2; }
.compute { fill: var(--compute); background: var(--compute); }
.wait { fill: var(--wait); background: var(--wait); }
.communication { fill: var(--communication); background: var(--communication); }
.job { stroke: var(--job); background: var(--job); }
.check { stroke: var(--check); background: var(--check); }
.dot { fill: var(--paper); stroke-width: 2; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .4em 0 1em; }
.findings li { margin-bottom: .7em; }
.note { font-size: .9em; border-left: 3px solid var(--soft); padding-left: .7em; }
table { border-collapse: collapse; font-size: .9em; }
td, th { padding: .2em .7em; text-align: left; white-space: nowrap; }
tr + tr { border-top: 1px solid var(--soft); } td { font-variant-numeric: tabular-nums; }
.heat td { text-align: right;
  background: color-mix(in srgb, var(--wait) calc(var(--heat) * 80%), transparent); }
.wide { overflow-x: auto; }
"""
