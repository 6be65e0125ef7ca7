# SPDX-License-Identifier: Apache-2.0
"""horovodrun --config-file: settings from YAML; flags win over it."""

from __future__ import annotations

import argparse
from typing import Optional

import yaml

from horovod.common import config


def apply(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Fills what the file that args name says into args, where no flag was given."""
    try:
        with open(args.config_file, encoding="utf-8") as file:
            document = yaml.safe_load(file) or {}
    except OSError as error:
        parser.error(f"cannot read --config-file {args.config_file}: {error.strerror}")
    except yaml.YAMLError as error:
        parser.error(f"--config-file {args.config_file} is not YAML: {error}")
    if not isinstance(document, dict):
        parser.error(
            f"--config-file {args.config_file} must hold sections such as 'params:'; see docs/running.md"
        )
    _apply_controller(args, document.get("controller"))
    try:
        values = config.flags_of_yaml(document)
    except ValueError as error:
        raise ValueError(f"--config-file {args.config_file}: {error}") from error
    for name, value in values.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def _apply_controller(args: argparse.Namespace, controller: Optional[str]) -> None:
    if controller is None or args.use_gloo or args.use_mpi or args.use_jsrun:
        return
    if str(controller).lower() not in ("gloo", "mpi"):
        raise ValueError(f"No such controller supported: {controller}")
    setattr(args, f"use_{str(controller).lower()}", True)
