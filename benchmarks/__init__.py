# SPDX-License-Identifier: Apache-2.0
"""Our collectives beside the others', in one run. `python -m benchmarks.run --help`."""
