"""Parameters of a pipeline file. A run sets them by `--set NAME=VALUE`; the file can have defaults."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from barnabas.base.errors import ConfigError

#: ``${name}`` in a SQL file; names with a dot or a colon are Spark's own.
_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)\}")

_WORDS = {int: "a whole number", float: "a number", bool: "true or false"}
_BOOLEANS = {"true": True, "false": False}


class Parameters:
    """The parameters of one pipeline file. `given` has the values from `--set`."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self._asked: set[str] = set()

    def get(self, name: str, default: Any) -> Any:
        """Return the value of the parameter `name`, in the type of `default`; a text if `default` is None.

        Raises:
            ConfigError: the parameter is not set and has no default, or its value has the wrong type.
        """
        self._asked.add(name)
        if name in self.given:
            return _convert(name, self.given[name], type(default))
        if default is None:
            raise ConfigError(f"parameter {name} is not given: add --set {name}=...")
        return default

    def fill_in(self, text: str, defaults: Mapping[str, Any]) -> str:
        """Return `text` with each ``${name}`` replaced by the parameter's value, by default from `defaults`.

        Raises:
            ConfigError: a parameter is not set and has no default, or its value has the wrong type.
        """
        return _REFERENCE.sub(lambda found: _written(self.get(found[1], defaults.get(found[1]))), text)

    def check(self) -> None:
        """Raise ConfigError if a value was given for a parameter that the file does not use."""
        for name in sorted(self.given.keys() - self._asked):
            close = difflib.get_close_matches(name, self._asked, 1)
            known = ", ".join(sorted(self._asked)) or "none"
            hint = f"did you mean {close[0]}?" if close else f"the file's parameters: {known}"
            raise ConfigError(f"there is no parameter {name}: {hint}")


def _convert(name: str, text: str, wanted: type) -> Any:
    if wanted not in _WORDS:
        return text
    try:
        return _BOOLEANS[text.lower()] if wanted is bool else wanted(text)
    except (ValueError, KeyError):
        raise ConfigError(f"parameter {name}={text} is not allowed: write {_WORDS[wanted]}") from None


def _written(value: object) -> str:
    """Return a value in the syntax of TOML and SQL."""
    return str(value).lower() if isinstance(value, bool) else str(value)
