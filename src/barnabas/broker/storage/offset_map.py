"""Maps each key to its last offset in the dirty part of a log, within a memory limit."""

from __future__ import annotations

from hashlib import sha256

from barnabas.base.types import Offset

#: bytes of an entry besides its key's bytes: both objects and its share of the table, just after it grew
ENTRY_BYTES = 160
_DIGEST_SIZE = sha256().digest_size


def token(key: bytes) -> bytes:
    """Return the form of a key in the map: a short key itself, or the digest of a longer key.

    A short key cannot equal the digest of another key, because digests are longer.
    """
    return key if len(key) < _DIGEST_SIZE else sha256(key).digest()


class OffsetMap:
    """The last offset of each key, for as many keys as fit into `max_bytes`. One cleaning owns it."""

    __slots__ = ("_free", "offsets")

    def __init__(self, max_bytes: int) -> None:
        self._free = max_bytes
        #: by token
        self.offsets: dict[bytes, Offset] = {}

    def put(self, key: bytes, offset: Offset, *, force: bool = False) -> bool:
        """Set the last offset of a key.

        Call it in the order of offsets. Return False if there is no room for the key. With `force`
        there is always room, so that a cleaning can process at least one batch.
        """
        name = token(key)
        if name not in self.offsets:
            size = ENTRY_BYTES + len(name)
            if size > self._free and not force:
                return False
            self._free -= size
        self.offsets[name] = offset
        return True

    def is_latest(self, key: bytes, offset: Offset) -> bool:
        """Whether the map has no offset after `offset` for this key."""
        return offset >= self.offsets.get(token(key), -1)
