"""The principal inside an Envelope, as Apache Kafka's default builder writes it (KIP-590)."""

from __future__ import annotations

import struct

from barnabas.base.errors import ProtocolError
from barnabas.base.types import Buffer
from barnabas.broker.logins.delegation_tokens import TokenPrincipal
from barnabas.kafka.protocol.codec import decode, encode
from barnabas.kafka.protocol.records.principal import DefaultPrincipalData
from barnabas.kafka.security.principal import ANONYMOUS, Principal

_VERSION = struct.Struct(">h")


def encode_principal(principal: Principal) -> bytes:
    """The bytes that name a principal."""
    data = DefaultPrincipalData(
        type=principal.kind,
        name=principal.name,
        token_authenticated=isinstance(principal, TokenPrincipal),
    )
    return _VERSION.pack(0) + encode(data, 0)


def decode_principal(data: Buffer | None) -> Principal:
    """The principal in the bytes; ANONYMOUS if there are none.

    Raises:
        ProtocolError: they are not a principal.
    """
    if data is None:
        return ANONYMOUS
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a principal of {len(data)} bytes")
    (version,) = _VERSION.unpack_from(data)
    found = decode(DefaultPrincipalData, version, data, _VERSION.size)
    kind = TokenPrincipal if found.token_authenticated else Principal
    return kind(found.name, found.type)
