# SPDX-License-Identifier: Apache-2.0
"""Helpers that scripts import from here."""

from __future__ import annotations

from horovod.spark.common.training_cache import clear_training_cache

__all__ = ["clear_training_cache"]
