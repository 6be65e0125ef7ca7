# SPDX-License-Identifier: Apache-2.0
"""Loaders by the names that data modules of an earlier release use."""
