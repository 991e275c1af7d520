"""The principal of a connection."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """A Kafka principal, such as ``User:alice``."""

    name: str
    kind: str = "User"

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Return the principal in a text such as ``User:alice``.

        Raises:
            ValueError: the text does not name a principal.
        """
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"'{text}' is not a principal: write User:NAME")
        return cls(name, kind)


#: the principal of a client that has not logged in
ANONYMOUS = Principal("ANONYMOUS")
#: the broker, in requests that it sends to itself; no client can log in as this
ITSELF = Principal("", "")


def check_name(name: str) -> None:
    """Check that a client's name is not ANONYMOUS, which is reserved for clients without a login.

    Raises:
        ValueError: the name is reserved.
    """
    if name == ANONYMOUS.name:
        raise ValueError(f"no client can log in as {name}: clients that have not logged in have this name")
