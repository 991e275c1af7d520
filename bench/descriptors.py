"""The limit of open files, which the client processes with many connections raise."""

from __future__ import annotations

import resource


def allow_descriptors(count: int) -> None:
    """Allow this process to open `count` files, or as many as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 100)), hard))
