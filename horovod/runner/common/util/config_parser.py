# SPDX-License-Identifier: Apache-2.0
"""From parsed flags to the workers' environment, under its old path."""

from __future__ import annotations

import argparse
from typing import Dict

from horovod.common import config


def set_env_from_args(env: Dict[str, str], args: argparse.Namespace) -> Dict[str, str]:
    """Adds the variables of all settings given as flags."""
    env.update(config.env_of(vars(args), env))
    return env
