# SPDX-License-Identifier: Apache-2.0
"""A short life full of deaths, joins and departures; scripts/elastic_soak.py is the long one."""

from __future__ import annotations

import os
import sys

from launching import ROOT

sys.path.insert(0, os.path.join(ROOT, "scripts"))
from elastic_soak import soak


def test_a_short_soak(tmp_path):
    told = soak(str(tmp_path), seconds=20, seed=7, pause=(0.2, 1.5), say=lambda text: None, at_least=5)
    assert told["hurt"] >= 5 and told["generations"] > told["hurt"] / 2
