# SPDX-License-Identifier: Apache-2.0
"""test_issues.py leads to cases in the files beside it, so these must be importable by name."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
