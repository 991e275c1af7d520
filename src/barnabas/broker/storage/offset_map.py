"""The last offset of each key in the part of a log that is being cleaned, in bounded memory."""

from __future__ import annotations

from hashlib import sha256

from barnabas.base.types import Offset

#: what an entry takes beside its key's bytes: both objects and its share of the table, just after it grew
ENTRY_BYTES = 160
_DIGEST_SIZE = sha256().digest_size


def token(key: bytes) -> bytes:
    """Return the map's form of a key: the key itself if it is short, else its digest, never longer than that.

    A short key cannot equal the digest of another, which is longer than any of them.
    """
    return key if len(key) < _DIGEST_SIZE else sha256(key).digest()


class OffsetMap:
    """Offsets by key, as many as fit into `max_bytes`. Owned by one cleaning at a time."""

    __slots__ = ("_free", "offsets")

    def __init__(self, max_bytes: int) -> None:
        self._free = max_bytes
        #: by token
        self.offsets: dict[bytes, Offset] = {}

    def put(self, key: bytes, offset: Offset, *, force: bool = False) -> bool:
        """Take note of a key at an offset beyond all before; False when there is no room for the key.

        `force` makes room, so that a cleaning can take one batch at least.
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
        """Whether the map knows of no later record with this key."""
        return offset >= self.offsets.get(token(key), -1)
