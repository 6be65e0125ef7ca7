# SPDX-License-Identifier: Apache-2.0
"""The version of this package, in one place for Python; `pyproject.toml` repeats it for the build."""

__version__ = "1.0.0.dev0"
