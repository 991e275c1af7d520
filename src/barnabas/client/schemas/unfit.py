"""Errors for values that a schema does not allow, with the path to the wrong part."""

from __future__ import annotations

import json
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.base.text import shown

_MAX_STEP = 60
_MAX_VALUE = 80


class UnfitError(BarnabasError):
    """A schema does not allow the value. The text begins with the path to the wrong part."""


def inside(path: str, step: str | int) -> str:
    """Return the path to a field, key or item of the value at `path`, such as ``value.lines[2].price``."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if step.isidentifier() else f"{path}[{value_text(step, _MAX_STEP)}]"


def value_text(value: Any, max_chars: int = _MAX_VALUE) -> str:
    """Return a JSON value as text for an error message.

    A text or number is cut to `max_chars` characters. Of an object, the result has the first names; of an
    array, the number of items.
    """
    if isinstance(value, dict) and value:
        return f"an object of {', '.join(value_text(name, _MAX_STEP) for name in list(value)[:5])}"
    if isinstance(value, list) and value:
        return f"an array of {len(value)}"
    text = json.dumps(value[:max_chars] if isinstance(value, str) else value, ensure_ascii=False)
    return shown(text, max_chars)


def require(fits: bool, path: str, value: Any, allowed: str) -> None:
    """Raise UnfitError if `fits` is false.

    Args:
        fits: whether the schema allows the value.
        path: the path to the value, for the error's text.
        allowed: what the schema allows, such as "a string".
    """
    if not fits:
        raise UnfitError(f"{path}: {value_text(value)} does not fit; write {allowed}")
