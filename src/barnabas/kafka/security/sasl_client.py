"""Client side of the SASL mechanisms, as generators that yield messages and receive the server's replies.

PLAIN is RFC 4616, SCRAM RFC 5802 and RFC 7677 (KIP-84).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Generator, Mapping
from typing import TypeAlias

from barnabas.kafka.security.errors import SaslError
from barnabas.kafka.security.scram import MECHANISMS, Mechanism

ClientExchange: TypeAlias = Generator[bytes, bytes, None]

#: more iterations would only waste the client's CPU time
MAX_ITERATIONS = 1_000_000


def plain(username: str, password: str) -> ClientExchange:
    """Yield the client's only message of a login with PLAIN, which contains the password.

    Use this only with TLS.
    """
    yield f"\0{username}\0{password}".encode()


def scram(
    mechanism: str, username: str, password: str, nonce: bytes, *, is_token: bool = False
) -> ClientExchange:
    """Yield the client's messages of a login with SCRAM-SHA-256 or SCRAM-SHA-512.

    Pass the server's response to each message with the generator's ``send``. The generator ends when the
    login has succeeded. Both sides prove that they know the password. Deriving the proof takes milliseconds
    of CPU time.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        nonce: at least 18 random bytes, which were never used before.
        is_token: whether the name is a delegation token's id, and the password its HMAC in base64 (KIP-48).

    Raises:
        SaslError: the server does not know the password, or breaks the protocol.
    """
    variant = MECHANISMS[mechanism]
    ours = base64.b64encode(nonce).decode()
    name = username.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={ours}{',tokenauth=true' if is_token else ''}"
    challenge = (yield f"n,,{bare}".encode()).decode(errors="replace")
    fields = _fields(challenge)
    both = fields.get("r", "")
    if not both.startswith(ours) or len(both) == len(ours):
        raise SaslError("the server's nonce does not begin with the client's nonce")
    try:
        salt = base64.b64decode(fields["s"], validate=True)
        iterations = int(fields["i"])
    except (KeyError, ValueError):
        raise SaslError("the server's first SCRAM message is malformed") from None
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise SaslError(f"the server demands {iterations} iterations, which is not allowed")
    unsigned = f"c=biws,r={both}"
    signed = f"{bare},{challenge},{unsigned}".encode()
    salted = hashlib.pbkdf2_hmac(variant.hash, password.encode(), salt, iterations)
    final = yield f"{unsigned},p={base64.b64encode(_proof(variant, salted, signed)).decode()}".encode()
    verdict = _fields(final.decode(errors="replace"))
    if "e" in verdict:
        raise SaslError(f"the server rejects the login: {verdict['e'][:100]}")
    server_key = hmac.digest(salted, b"Server Key", variant.hash)
    expected = base64.b64encode(hmac.digest(server_key, signed, variant.hash)).decode()
    if not hmac.compare_digest(verdict.get("v", "").encode(), expected.encode()):
        raise SaslError("the server does not prove that it knows the password")


def _proof(variant: Mechanism, salted: bytes, signed: bytes) -> bytes:
    client_key = hmac.digest(salted, b"Client Key", variant.hash)
    stored_key = hashlib.new(variant.hash, client_key).digest()
    signature = hmac.digest(stored_key, signed, variant.hash)
    return bytes(a ^ b for a, b in zip(client_key, signature, strict=True))


def _fields(message: str) -> Mapping[str, str]:
    return dict(part.partition("=")[::2] for part in message.split(",") if part[1:2] == "=")
