"""Quotas of clients on a broker, without I/O (KIP-13, KIP-124, KIP-546, KIP-599, KIP-612)."""

from barnabas.broker.quotas.clients import ClientQuotas, Mutations, Windows
from barnabas.broker.quotas.connections import ConnectionRates
from barnabas.broker.quotas.entities import DEFAULT, Default, QuotaEntity, QuotaKind, limits_of
from barnabas.broker.quotas.windows import Rate, TokenBucket

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
