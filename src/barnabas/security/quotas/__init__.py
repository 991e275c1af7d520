"""Quotas of clients on a broker, without I/O (KIP-13, KIP-124, KIP-546, KIP-599, KIP-612)."""

from barnabas.security.quotas.clients import ClientQuotas, Mutations, Windows
from barnabas.security.quotas.connections import ConnectionRates
from barnabas.security.quotas.entities import DEFAULT, Default, QuotaEntity, QuotaKind, limits_of
from barnabas.security.quotas.windows import Rate, TokenBucket

__all__ = [
    "DEFAULT",
    "ClientQuotas",
    "ConnectionRates",
    "Default",
    "Mutations",
    "QuotaEntity",
    "QuotaKind",
    "Rate",
    "TokenBucket",
    "Windows",
    "limits_of",
]
