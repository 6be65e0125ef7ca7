# SPDX-License-Identifier: Apache-2.0
"""A script that does nothing, for torchrun, which wants a file."""
