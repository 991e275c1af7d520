"""The server's side of SCRAM (RFC 5802, RFC 7677; KIP-84), and the credentials that it stores.

A stolen credential does not reveal the password: neither the password nor a client's proof can be computed
from its keys.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.kafka.security.errors import InvalidCredential, SaslError

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
#: the size of a new salt in bytes
SALT_BYTES = 24


class Mechanism(IntEnum):
    """The variants of SCRAM, with their numbers in the protocol (KIP-554)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def text(self) -> str:
        """Return the name of the mechanism in SASL, such as ``SCRAM-SHA-256``."""
        return self.name.replace("_", "-")

    @property
    def size(self) -> int:
        """Return the size of a key in bytes."""
        return 32 if self is Mechanism.SCRAM_SHA_256 else 64

    @property
    def hash(self) -> str:
        """Return the name of the hash function in `hashlib`."""
        return "sha256" if self is Mechanism.SCRAM_SHA_256 else "sha512"


#: the mechanisms by their names in SASL
MECHANISMS = {mechanism.text: mechanism for mechanism in Mechanism}


class ScramCredential(NamedTuple):
    """The stored credential of a user for one mechanism; see RFC 5802, section 3."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(..., iterations={self.iterations})"

    def encode(self) -> str:
        """Return the credential in the format of ZooKeeper-based Kafka (``ScramCredentialUtils``)."""
        salt, stored, server = (base64.b64encode(each).decode() for each in self[:3])
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def decode(cls, text: str) -> ScramCredential:
        """Return the credential in a text from `encode`. Raises InvalidCredential for any other text."""
        fields = dict(item.split("=", 1) for item in text.split(",") if "=" in item)
        try:
            salt, stored, server = (
                base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored, server, int(fields["iterations"]))
        except (KeyError, ValueError) as error:
            raise InvalidCredential("a stored SCRAM credential cannot be read") from error


def can_log_in(texts: Mapping[str, str]) -> bool:
    """Whether a user has a SCRAM credential. `texts` has the values of the user's settings, by name."""
    return any(mechanism in MECHANISMS for mechanism in texts)


def derive(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential for a password, a salt and a number of iterations (PBKDF2).

    The call takes milliseconds of CPU time: use a thread.
    """
    salted = hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)
    return of_salted_password(mechanism, salted, salt, iterations)


def of_salted_password(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential for a password that a client has salted (KIP-554).

    `salted` is the result of PBKDF2 for the password, with `salt` and this number of `iterations`.
    """
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash)
    stored_key = hashlib.new(mechanism.hash, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", mechanism.hash), iterations)


_ATTRIBUTE = r"[A-Za-z]+=[^,\0]+"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>(?P<binding>[ny]),(?:a=(?P<authzid>[^,\0]+))?,)"
    rf"(?P<bare>n=(?P<user>[^,\0]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,{_ATTRIBUTE})*))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unsigned>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,{_ATTRIBUTE})*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_ESCAPE = re.compile("=(2C|3D|)")
_ESCAPED = {"2C": ",", "3D": "="}


class ShownToken(NamedTuple):
    """A delegation token with which a client logs in: its credential, its owner and its expiry."""

    credential: ScramCredential
    owner: str
    #: in milliseconds since the epoch
    expires_ms: int


class ScramExchange:
    """The server's side of one SCRAM login. Pass the client's first and its final message to `respond`.

    Args:
        mechanism: variant of SCRAM.
        find: returns the credential of a user; None if there is none.
        nonce: the server's part of the nonce, printable and without commas.
        make_up: invents a credential for a user who does not exist, so that clients see no difference.
        find_token: returns the delegation token with an id; None if there is none.
        make_up_token: invents a credential for a delegation token that does not exist.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        find: Callable[[str], ScramCredential | None],
        *,
        nonce: str,
        make_up: Callable[[str], ScramCredential],
        find_token: Callable[[str], ShownToken | None],
        make_up_token: Callable[[str], ScramCredential],
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._make_up = make_up
        self._find_token = find_token
        self._make_up_token = make_up_token
        self._nonce = nonce
        self._first: tuple[str, str, str] | None = None
        self._credential: ScramCredential | None = None
        self._is_known = False
        #: who the client claims to be; the id of a delegation token until the client has proven that it has
        #: the token
        self.user = ""
        self._owner = ""
        #: the id of the delegation token with which the client logs in; None for a user
        self.token_id: str | None = None
        #: whether the login has succeeded
        self.is_complete = False
        #: when the delegation token expires
        self.expires_ms: int | None = None

    def respond(self, message: bytes) -> bytes:
        """Return the response to the client's next message.

        Raises:
            SaslError: the exchange has failed.
        """
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise SaslError("a SCRAM message is not UTF-8") from None
        return self._challenge(text) if self._first is None else self._verify(text)

    def _challenge(self, text: str) -> bytes:
        first = _CLIENT_FIRST.fullmatch(text)
        if first is None:
            raise SaslError("the first SCRAM message is malformed")
        user = _unescaped(first["user"])
        if first["authzid"] is not None and _unescaped(first["authzid"]) != user:
            raise SaslError("a client may only act for the user that it logs in as")
        self.user = self._owner = user
        if _shows_token(first["extensions"]):
            found, make_up = self._find_shown(user), self._make_up_token
        else:
            found, make_up = self._find(user), self._make_up
        self._is_known = found is not None
        self._credential = credential = found or make_up(user)
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={first['nonce']}{self._nonce},s={salt},i={credential.iterations}"
        self._first = first["gs2"], first["bare"], answer
        self._nonce = first["nonce"] + self._nonce
        return answer.encode()

    def _find_shown(self, token_id: str) -> ScramCredential | None:
        self.token_id = token_id
        shown = self._find_token(token_id)
        if shown is None:
            return None
        self._owner, self.expires_ms = shown.owner, shown.expires_ms
        return shown.credential

    def _verify(self, text: str) -> bytes:
        assert self._first is not None and self._credential is not None
        gs2, bare, challenge = self._first
        credential = self._credential
        final = _CLIENT_FINAL.fullmatch(text)
        if final is None:
            raise SaslError("the final SCRAM message is malformed")
        if final["binding"] != base64.b64encode(gs2.encode()).decode() or final["nonce"] != self._nonce:
            raise SaslError("the final SCRAM message does not belong to the first")
        signed = ",".join((bare, challenge, final["unsigned"])).encode()
        try:
            proof = base64.b64decode(final["proof"], validate=True)
        except binascii.Error:
            raise SaslError("the final SCRAM message is malformed") from None
        signature = hmac.digest(credential.stored_key, signed, self._mechanism.hash)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        stored_key = hashlib.new(self._mechanism.hash, client_key).digest()
        is_proven = hmac.compare_digest(stored_key, credential.stored_key) and len(proof) == len(signature)
        if not is_proven or not self._is_known:
            raise SaslError("the credentials are invalid")
        self.is_complete = True
        self.user = self._owner
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, self._mechanism.hash))


def _shows_token(extensions: str) -> bool:
    """Whether the `extensions` in a client's first message say that its name is a token's id (KIP-48)."""
    return any(each.lower() == "tokenauth=true" for each in extensions.split(","))


def _unescaped(name: str) -> str:
    """Return a user's name from a message. Raises SaslError for an invalid escape."""

    def character(escape: re.Match[str]) -> str:
        if escape[1] not in _ESCAPED:
            raise SaslError("a user's name in a SCRAM message is malformed")
        return _ESCAPED[escape[1]]

    return _ESCAPE.sub(character, name)
