"""The nodes of delegation tokens, as Apache Kafka on ZooKeeper stored them (``DelegationTokenManagerZk``).

    /delegation_token/tokens/ID     {"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Aalice",
                                    "renewers":["User%3Abob"],"issueTimestamp":1,"maxTimestamp":3,
                                    "expiryTimestamp":2,"tokenId":"ID"}

Times are milliseconds since the epoch. Principals are percent-encoded. Brokers watch these nodes themselves,
and do not write Kafka's ``/delegation_token/token_changes``.
"""

from __future__ import annotations

import json
from urllib.parse import quote, unquote

from barnabas.base.text import logger_of
from barnabas.broker.logins.delegation_tokens import DelegationToken
from barnabas.kafka.security.principal import Principal

log = logger_of(__name__)

FOLDER = "/delegation_token/tokens"
#: every permanent node, parents first
ALL_FOLDERS = ("/delegation_token", FOLDER)


def path(token_id: str) -> str:
    """Return the path of a token's node."""
    return f"{FOLDER}/{token_id}"


def encode(token: DelegationToken) -> bytes:
    """Encode the content of a token's node."""
    value = {
        "version": 3,
        "owner": _encoded(token.owner),
        "tokenRequester": _encoded(token.requester),
        "renewers": [_encoded(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.id,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode(token_id: str, data: bytes) -> DelegationToken | None:
    """Decode the delegation token in a node. If `data` is invalid, log an error and return None.

    Clients cannot log in with an invalid token.
    """
    try:
        value = json.loads(data)
        owner = _decoded(value["owner"])
        requester = value.get("tokenRequester")  # not in those that Kafka made before KIP-373
        return DelegationToken(
            token_id,
            owner,
            owner if requester is None else _decoded(requester),
            tuple(map(_decoded, value["renewers"])),
            int(value["issueTimestamp"]),
            int(value["maxTimestamp"]),
            int(value["expiryTimestamp"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.error(
            "the delegation token at %s cannot be read (%s): it allows no login",
            path(token_id),
            type(error).__name__,
        )
        return None


def _encoded(principal: Principal) -> str:
    return quote(str(principal), safe="")


def _decoded(text: str) -> Principal:
    return Principal.parse(unquote(text))
