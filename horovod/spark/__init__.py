# SPDX-License-Identifier: Apache-2.0
"""Horovod on Spark."""
