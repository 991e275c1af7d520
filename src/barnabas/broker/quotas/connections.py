"""Limits the rate of new connections, from one address and in total (KIP-612)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.base.metrics import Rate
from barnabas.broker.quotas.clients import Windows
from barnabas.broker.quotas.entities import DEFAULT, Name, QuotaEntity, QuotaKind, limits_of

#: most addresses whose rates are kept
_MAX_ADDRESSES = 10_000


class ConnectionRates:
    """Measures the rates of new connections, and compares these rates with limits.

    The limits are the quotas of addresses, and the limits of listeners.

    Args:
        now: returns the seconds of a monotonic clock.
        windows: window in which connections are counted; None for the defaults.
    """

    def __init__(self, now: Callable[[], float], windows: Windows | None = None) -> None:
        self._now = now
        self._windows = windows or Windows()
        self._limits: dict[Name, float] = {}
        self._by_address: dict[str, Rate] = {}
        #: rate of all connections of each listener; under "" that of all listeners together
        self._together: dict[str, Rate] = {}

    def set(self, entity: QuotaEntity, texts: Mapping[str, str]) -> None:
        """Replace the quota of an address, or the default quota of addresses, with the one in `texts`.

        `texts` has stored settings. If they have no valid quota, the old quota is removed.

        Nothing changes if the entity is not an address.
        """
        if entity.ip is None:
            return
        self._limits.pop(entity.ip, None)
        limit = limits_of(texts).get(QuotaKind.CONNECTION)
        if limit is not None:
            self._limits[entity.ip] = limit
        if not self._limits:
            self._by_address.clear()

    def admit(self, address: str) -> bool:
        """Return whether the quota of an address allows a new connection. If it does, count the connection.

        If the address has no quota of its own, the default quota applies. Without any quota, return True and
        count nothing.
        """
        if not self._limits:
            return True
        limit = self._limits.get(address, self._limits.get(DEFAULT))
        if limit is None:
            return True
        now = self._now()
        rate = self._by_address.get(address)
        if rate is None:
            if len(self._by_address) >= _MAX_ADDRESSES:
                self._make_room(now)
            rate = self._by_address[address] = Rate(*self._windows)
        if rate.delay(limit, now, more=1) > 0:
            return False
        rate.record(1, now)
        return True

    def delay(self, limit: float, listener: str = "") -> float:
        """Count a new connection from any address. Return the seconds to wait before it is accepted.

        The result is 0.0 within the limit. It is at most the length of one sample
        (``quota.window.size.seconds``).

        Args:
            limit: number of new connections a second.
            listener: listener with this limit; "" for the limit of all listeners together.
        """
        rate = self._together.get(listener)
        if rate is None:
            rate = self._together[listener] = Rate(*self._windows)
        now = self._now()
        rate.record(1, now)
        return min(rate.delay(limit, now), self._windows.seconds)

    def _make_room(self, now: float) -> None:
        kept = {address: rate for address, rate in self._by_address.items() if not rate.is_idle(now)}
        if len(kept) > _MAX_ADDRESSES // 2:
            kept = dict(list(kept.items())[len(kept) // 2 :])
        self._by_address = kept
