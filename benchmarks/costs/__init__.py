# SPDX-License-Identifier: Apache-2.0
"""Where the microseconds of one row go. `python -m benchmarks.costs --help`."""
