# SPDX-License-Identifier: Apache-2.0
"""One setting: where it can be written, and which values are right there. The table of them is config.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Optional, Tuple

_TOO_LARGE = float(1 << 53)  # where doubles no longer tell whole numbers apart
_ON, _OFF = ("true", "yes", "on"), ("false", "no", "off")


@dataclass(frozen=True)
class Setting:
    """One row.

    Attributes:
        name: its name for the engine and in this package, e.g. "fusion_threshold".
        env: environment variable.
        type: int, float, str or bool; the type of the environment variable's value.
        default: value when nobody sets it.
        help: what it does, for `--help` and the reference.
        section: heading in the reference; also the YAML section when `yaml` is given.
        flag: launcher flag, "" for none. Boolean settings have a "--no-" twin.
        yaml: key inside the YAML section, "" for none.
        scale: the flag's unit, in units of the variable (a flag in MiB for a variable in bytes).
        inverted: "" or "flag", "yaml", "flag yaml": where a boolean is written the other way round.
        choices: allowed texts, in any case; an unknown one counts as the default if `tolerant`.
        minimum, maximum: allowed range of the variable's value.
        needs: exported by the launcher only when that other setting is on.
        engine: handed to the engine at init.
    """

    name: str
    env: str
    type: type
    default: Any
    help: str
    section: str
    flag: str = ""
    yaml: str = ""
    scale: int = 1
    inverted: str = ""
    choices: Tuple[str, ...] = ()
    tolerant: bool = False
    minimum: Optional[float] = None
    maximum: Optional[float] = None
    needs: str = ""
    engine: bool = True

    @property
    def dest(self) -> str:
        """Attribute of the parsed arguments, and keyword of `horovod.run`."""
        if self.flag == "--log-without-timestamp":
            return "log_with_timestamp"  # the group of log flags is known by its positive name
        return self.flag.lstrip("-").replace("-", "_")

    def parse(self, text: str) -> Any:
        """The value of the environment variable's text; empty text is the default.

        Raises:
            ValueError: the text is wrong; names the variable, the text and what is expected.
        """
        if not text.strip():
            return self.default
        return self._checked(text, self.env, 1)

    def text(self, value: Any) -> str:
        """The environment variable's text of a value."""
        return ("1" if value else "0") if self.type is bool else str(value)

    def from_flag(self, value: Any) -> Any:
        """The variable's value from the flag's (or keyword's), checked."""
        checked = self._checked(value, self.dest, self.scale)
        return checked != ("flag" in self.inverted.split()) if self.type is bool else checked

    def from_yaml(self, value: Any) -> Any:
        """The variable's value from the YAML file's, checked."""
        checked = self._checked(value, f"{self.section}.{self.yaml}", self.scale)
        return checked != ("yaml" in self.inverted.split()) if self.type is bool else checked

    def _checked(self, value: Any, shown: str, scale: int) -> Any:
        if self.type is bool:
            return self._switch(value, shown)
        if self.type is str:
            return self._choice(str(value), shown)
        return self._number(value, shown, scale)

    def _switch(self, value: Any, shown: str) -> bool:
        """Any number above 0 is on, as in the original; so are a few words."""
        word = str(value).strip().lower()
        if word in _ON or word in _OFF:
            return word in _ON
        try:
            return float(word) > 0
        except ValueError:
            raise ValueError(f"{shown}={value} must be 1 or 0 (or true or false)") from None

    def _choice(self, value: str, shown: str) -> str:
        if self.choices and value.strip().lower() not in [one.lower() for one in self.choices]:
            if self.tolerant and shown == self.env:
                return str(self.default)
            raise ValueError(f"{shown}={value} must be one of {', '.join(self.choices)}")
        return value

    def _number(self, value: Any, shown: str, scale: int) -> Any:
        """The variable's number; `scale` is that of the place it is written in."""
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not abs(number) < _TOO_LARGE or (self.type is int and scale == 1 and number != int(number)):
            kind = "a number" if self.type is float else "a whole number"
            example = f"{self.default / scale:g}" if scale != 1 else self.default
            raise ValueError(f"{shown}={value} is not {kind}{self._range(scale)}, e.g. {example}")
        number *= scale
        below = self.minimum is not None and number < self.minimum
        if below or (self.maximum is not None and number > self.maximum):
            raise ValueError(f"{shown}={value} must be{self._range(scale)}")
        return self.type(number)

    def _range(self, scale: int) -> str:
        if self.minimum is not None and self.maximum is not None:
            return f" in [{self.minimum / scale:.10g}, {self.maximum / scale:.10g}]"
        return "" if self.minimum is None else f" >= {self.minimum / scale:.10g}"
