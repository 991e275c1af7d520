"""Who asks."""

from __future__ import annotations

from typing import NamedTuple


class Caller(NamedTuple):
    """Where a request comes from."""

    api_version: int
    client_id: str
    client_host: str
