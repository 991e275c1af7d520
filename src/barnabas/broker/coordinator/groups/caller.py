"""The client that sent a request to the group coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


def _everything(_topic: str) -> bool:
    return True


class Caller(NamedTuple):
    """The client that sent a request, and the version of the API that the request uses."""

    api_version: int
    client_id: str
    client_host: str
    #: returns whether the client may describe the topic with this name
    may_see: Callable[[str], bool] = _everything
