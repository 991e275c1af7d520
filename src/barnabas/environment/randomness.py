"""Random numbers and unique ids, all from one source that the environment brings."""

from __future__ import annotations

from random import Random, SystemRandom
from uuid import UUID


def system_random() -> Random:
    """The operating system's random numbers: safe from any thread, the same at no two starts."""
    return SystemRandom()


def new_uuid(random: Random) -> UUID:
    """A random UUID (RFC 9562, version 4)."""
    return UUID(bytes=random.randbytes(16), version=4)
