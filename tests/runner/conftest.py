# SPDX-License-Identifier: Apache-2.0
"""Makes the helpers beside these tests importable."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
