# SPDX-License-Identifier: Apache-2.0
"""How horovodrun reads a command line: lists that grow, old spellings, errors that help."""

from __future__ import annotations

import argparse
import difflib
import shutil
import warnings
from typing import Any, List, NoReturn, Optional, Sequence, Union


class Interfaces(argparse.Action):
    """Collects interface names; repeated flags add to each other."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Union[str, Sequence[Any], None],
        option_string: Optional[str] = None,
    ) -> None:
        text = str(values)
        if option_string == "--network-interface" and "," in text:
            warnings.warn(
                "--network-interface takes one name; use --network-interfaces for a list",
                DeprecationWarning,
                stacklevel=2,
            )
        names = {name.strip() for name in text.split(",") if name.strip()}
        namespace.nics = (namespace.nics or set()) | names


class Renamed(argparse.Action):
    """An old spelling of a flag: const is (new spelling, value)."""

    def __init__(self, option_strings: List[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **kwargs)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Union[str, Sequence[Any], None],
        option_string: Optional[str] = None,
    ) -> None:
        new, value = self.const
        warnings.warn(
            f"Argument {option_string} has been replaced by {new} and will be removed in v0.21.0",
            DeprecationWarning,
            stacklevel=2,
        )
        setattr(namespace, self.dest, value)


class Parser(argparse.ArgumentParser):
    """Of horovodrun: ends with what was probably meant, not with pages of usage."""

    def error(self, message: str) -> NoReturn:
        """Says what is wrong and what was probably meant."""
        known = [option for action in self._actions for option in action.option_strings]
        hints = []
        if message.startswith("unrecognized arguments"):  # other errors name flags that exist
            for word in message.replace(",", " ").split():
                if word.startswith("--") and word not in known:
                    close = difflib.get_close_matches(word.split("=")[0], known, n=1)
                    hints += [f"Did you mean {close[0]}?"] if close else []
            hints.append(
                "Options of your own script go after the command: horovodrun -np 2 python train.py --lr 0.1"
            )
        self.exit(2, f"horovodrun: error: {message}\n" + "".join(f"  {hint}\n" for hint in hints)
                  + "  See horovodrun --help\n")  # fmt: skip


class Formatter(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal, within reason."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        super().__init__(prog, max_help_position=34, width=width)
