"""Quotas of clients on a broker, without I/O (KIP-13, KIP-124, KIP-546, KIP-599, KIP-612)."""

from barnabas.broker.quotas.clients import ClientQuotas, Mutations, Windows
from barnabas.broker.quotas.connections import ConnectionRates
from barnabas.broker.quotas.entities import DEFAULT, Default, QuotaEntity, QuotaKind, limits_of
from barnabas.broker.quotas.token_bucket import TokenBucket

__all__ = [
    "DEFAULT",
    "ClientQuotas",
    "ConnectionRates",
    "Default",
    "Mutations",
    "QuotaEntity",
    "QuotaKind",
    "TokenBucket",
    "Windows",
    "limits_of",
]
