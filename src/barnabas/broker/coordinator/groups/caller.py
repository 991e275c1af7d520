"""Who asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


def _everything(_topic: str) -> bool:
    return True


class Caller(NamedTuple):
    """Where a request comes from."""

    api_version: int
    client_id: str
    client_host: str
    #: whether it may know of a topic
    may_see: Callable[[str], bool] = _everything
