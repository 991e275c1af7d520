"""Computes credentials for users who do not exist, so that a login does not reveal which users exist.

In SCRAM the broker sends a user's salt and iterations before the client has proven anything. For an unknown
user, this module computes both from a secret of the cluster. So both are the same on each broker and after
each restart. The computed credentials also look like those of real users. A client can see three features:
the size of the salt, the kind of its bytes, and the number of iterations. Real and computed credentials have
these features with the same frequency.
"""

from __future__ import annotations

import hmac
import math
import re
from collections import Counter
from enum import Enum
from functools import lru_cache
from hashlib import shake_256
from typing import NamedTuple

from barnabas.broker.logins.stored import StoredLogins, Users
from barnabas.kafka.security.errors import InvalidCredential
from barnabas.kafka.security.scram import MIN_ITERATIONS, SALT_BYTES, Mechanism, ScramCredential

#: the most shapes that are used: the most frequent ones
_MAX_SHAPES = 64
#: the number of cached shapes: a count after a change of users need not decode them again
_MAX_REMEMBERED = 20_000
#: random bits in a salt that Kafka's tools make, written in base 36 (``ScramFormatter.secureRandomBytes``)
_JAVA_BITS = 130
_JAVA_SALT = re.compile(rb"[1-9a-z][0-9a-z]{0,25}")
_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyz"
_PRINTABLE = bytes(range(0x21, 0x7F))


class _Letters(Enum):
    """The kind of bytes in a credential's salt, which shows the tool that made the salt."""

    JAVA = "a number in base 36"
    PRINTABLE = "printable ASCII"
    ALL = "all bytes"


class _Salt(NamedTuple):
    """The features of one credential that a client can see without the password."""

    size: int
    letters: _Letters
    iterations: int


class _Shape(NamedTuple):
    """The features of a user's credentials that a client can see without the password, by mechanism."""

    by_mechanism: tuple[tuple[Mechanism, _Salt], ...]
    #: whether both mechanisms have the same salt
    is_shared: bool

    def salt(self, mechanism: Mechanism) -> _Salt | None:
        """Return the features of the credential for `mechanism`; None if there is no such credential."""
        return next((salt for each, salt in self.by_mechanism if each is mechanism), None)


class _Weighted(NamedTuple):
    """A shape of credentials, the number of users who have it, and a text that names it (`label`).

    To choose a shape for an unknown user, `UnknownUsers` computes a pseudorandom number for each shape. The
    number depends on the label and on the user's name.
    """

    shape: _Shape
    label: str
    users: int


#: the shape of users that Barnabas' own tools make
_OURS = _Shape(
    tuple((mechanism, _Salt(SALT_BYTES, _Letters.ALL, MIN_ITERATIONS)) for mechanism in Mechanism), False
)


class UnknownUsers:
    """Computes credentials for unknown users. Any thread can call its methods.

    Args:
        secret: a secret of the cluster, the same on all brokers.
        stored: has the real users. The computed credentials resemble theirs.
    """

    def __init__(self, secret: bytes, stored: StoredLogins) -> None:
        self._secret = secret
        self._stored = stored
        self._counted: tuple[Users, list[_Weighted]] | None = None
        self._shape_of = lru_cache(_MAX_REMEMBERED)(_shape)

    def credential(self, mechanism: Mechanism, user: str) -> ScramCredential:
        """Return the credential of an unknown user for `mechanism`. No password matches it."""
        shape = self._draw(user, mechanism)
        salt = shape.salt(mechanism)
        assert salt is not None
        label = "salt" if shape.is_shared else f"salt {mechanism.text}"
        return self._made_up(mechanism, self._salt(label, user, salt), user, salt.iterations)

    def any_credential(self, user: str) -> tuple[Mechanism, ScramCredential]:
        """Return a mechanism and a credential with which PLAIN checks the password of an unknown user.

        No password matches the credential.
        """
        mechanism = self._draw(user, None).by_mechanism[0][0]
        return mechanism, self.credential(mechanism, user)

    def token_credential(self, mechanism: Mechanism, token_id: str) -> ScramCredential:
        """Return a credential for a delegation token that does not exist. No password matches it.

        The salt is the one that a real token with this id would have, so a client cannot tell the two cases
        apart.
        """
        salt = _Salt(SALT_BYTES, _Letters.ALL, MIN_ITERATIONS)
        made = self._salt(f"token {mechanism.text}", token_id, salt)
        return self._made_up(mechanism, made, token_id, salt.iterations)

    def _made_up(self, mechanism: Mechanism, salt: bytes, name: str, iterations: int) -> ScramCredential:
        keys = self._bytes("keys", name, mechanism.size)
        return ScramCredential(salt, keys, keys, iterations)

    def _draw(self, user: str, mechanism: Mechanism | None) -> _Shape:
        """Choose the features (`_Shape`) of the credentials for the unknown user `user`.

        Choose among the shapes of real users that have a credential for `mechanism`; among all shapes if
        `mechanism` is None. If no real user has such a credential, return the shape of the credentials that
        Barnabas' own tools make.

        The chance of each shape is the share of real users who have it. Weighted rendezvous hashing makes the
        choice. So the choice seldom changes when users are added or removed.
        """
        shapes = [
            each for each in self._shapes() if mechanism is None or each.shape.salt(mechanism) is not None
        ]

        def rank(weighted: _Weighted) -> float:
            drawn = int.from_bytes(self._bytes(weighted.label, user, 8), "big")
            return -math.log((drawn + 1) / 2**64) / weighted.users

        return min(shapes, key=rank).shape if shapes else _OURS

    def _shapes(self) -> list[_Weighted]:
        users, counted = self._stored.users, self._counted
        if counted is None or counted[0] is not users:
            counts = Counter(
                shape
                for texts in users.values()
                if (shape := self._shape_of(*(texts.get(mechanism.text) for mechanism in Mechanism)))
            )
            weighted = [_Weighted(shape, f"shape {shape}", count) for shape, count in counts.items()]
            # Sorted, so that all brokers keep the same shapes: each process iterates users in another order.
            weighted.sort(key=lambda each: (-each.users, each.label))
            self._counted = counted = users, weighted[:_MAX_SHAPES]
        return counted[1]

    def _salt(self, label: str, user: str, shape: _Salt) -> bytes:
        if shape.letters is _Letters.ALL:
            return self._bytes(label, user, shape.size)
        number = int.from_bytes(self._bytes(label, user, shape.size + 8), "big")
        if shape.letters is _Letters.PRINTABLE:
            return _written(number % len(_PRINTABLE) ** shape.size, _PRINTABLE, shape.size)
        first, end = 36 ** (shape.size - 1), min(36**shape.size, 1 << _JAVA_BITS)
        return _written(first + number % (end - first), _DIGITS, shape.size)

    def _bytes(self, label: str, name: str, size: int) -> bytes:
        key = hmac.digest(self._secret, f"{label}\0{name}".encode(), "sha512")
        return shake_256(key).digest(size)


def _shape(*texts: str | None) -> _Shape | None:
    """Return the visible features of a user's stored credentials. Ignore invalid credentials.

    `texts` has the credential for each `Mechanism` in order, None where the user has none. Return None if
    the user has no valid credential.
    """
    salts: dict[Mechanism, _Salt] = {}
    seen = set()
    for mechanism, text in zip(Mechanism, texts, strict=True):
        if text is None:
            continue
        try:
            credential = ScramCredential.decode(text)
        except InvalidCredential:
            continue
        salt = credential.salt
        seen.add(salt)
        salts[mechanism] = _Salt(len(salt), _letters(salt), credential.iterations)
    return _Shape(tuple(salts.items()), len(seen) < len(salts)) if salts else None


def _letters(salt: bytes) -> _Letters:
    if _JAVA_SALT.fullmatch(salt) and int(salt, 36) < 1 << _JAVA_BITS:
        return _Letters.JAVA
    return _Letters.PRINTABLE if salt and not set(salt) - set(_PRINTABLE) else _Letters.ALL


def _written(number: int, digits: bytes, size: int) -> bytes:
    written = bytearray()
    for _ in range(size):
        number, digit = divmod(number, len(digits))
        written.append(digits[digit])
    return bytes(reversed(written))
