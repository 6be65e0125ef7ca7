# SPDX-License-Identifier: Apache-2.0
"""Seeing inside a running job, from its launcher.

    reporter.py in each rank -> the job's store -> watcher.py -> collector.py (what is known; pure)
                                                       ├ dashboard.py, page/    a page in a browser
                                                       ├ top.py                 the same in a terminal
                                                       ├ openmetrics.py         for Prometheus
                                                       └ inquiry.py, stacks.py  for `horovodrun --stacks`

Nothing of it is imported, listens or runs unless the user asks for it (wanted.py).
"""
