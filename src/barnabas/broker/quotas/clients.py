"""Quotas of clients, by user, client id or both, with their defaults."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.base.metrics import Rate
from barnabas.broker.quotas.entities import DEFAULT, Name, QuotaEntity, QuotaKind, limits_of
from barnabas.broker.quotas.token_bucket import TokenBucket

#: most meters that are kept, because clients choose their ids freely
_MAX_METERS = 10_000

#: the key of a meter: kind, user and client id; None if all users or client ids share the meter
_MeterKey = tuple[QuotaKind, str | None, str | None]


class Windows(NamedTuple):
    """The window in which use is measured: the number of its samples, and the seconds of each sample."""

    samples: int = 11
    seconds: float = 1.0


class _Meter:
    """The measured use and the limit of one kind of quota, for one user, one client id or both together."""

    __slots__ = ("limit", "rate")

    def __init__(self, rate: Rate) -> None:
        self.limit = 0.0
        self.rate = rate


class Mutations:
    """A client's quota of partition creations and deletions (KIP-599), applied to one request.

    Args:
        bucket: the token bucket of all clients that share the quota.
        now: returns the seconds of a monotonic clock.
        strict: whether `admit` rejects partitions above the quota.
    """

    def __init__(self, bucket: TokenBucket, now: Callable[[], float], *, strict: bool) -> None:
        self._bucket = bucket
        self._now = now
        self._is_strict = strict
        self._is_delayed = False

    def admit(self, partitions: int) -> bool:
        """Count the partitions that the client wants to create or delete. Return whether to allow this.

        With `strict`, return False and count nothing while the token bucket is below zero. While the bucket
        is not below zero, allow a request of any size.

        Without `strict`, always return True. Some request versions do not have the error
        THROTTLING_QUOTA_EXCEEDED. Their clients must wait after the response (`delay`).
        """
        now = self._now()
        if self._is_strict and self._bucket.delay(now) > 0:
            self._is_delayed = True
            return False
        self._bucket.consume(partitions, now)
        self._is_delayed |= not self._is_strict
        return True

    def delay(self) -> float:
        """Return the seconds that the client must wait after the response to the request.

        With `strict`, return 0.0 if `admit` has rejected nothing. In all other cases, the client must wait
        until partitions may be created or deleted again.
        """
        return self._bucket.delay(self._now()) if self._is_delayed else 0.0


class ClientQuotas:
    """The quotas of users and client ids, and their use on this broker.

    The quota of the user with the client id applies if there is one. If there is none, the first of these
    applies, as in Kafka:

    - the user with any client id, then the user;
    - any user with the client id, then any user with any client id, then any user;
    - the client id, then any client id.

    A quota for any user is not shared: each user may use all of it. A quota for any client id is not shared
    either. But all clients of a user share the user's quota.

    Args:
        now: returns the seconds of a monotonic clock.
        windows: window in which the use is measured, for all quotas except mutations; None for 11 samples of
            1 second.
        mutation_windows: window for mutations; None for 11 samples of 1 second.
    """

    def __init__(
        self,
        now: Callable[[], float],
        windows: Windows | None = None,
        mutation_windows: Windows | None = None,
    ) -> None:
        self._now = now
        self._windows = windows or Windows()
        self._mutation_windows = mutation_windows or Windows()
        self._limits: dict[QuotaKind, dict[tuple[Name, Name], float]] = {kind: {} for kind in QuotaKind}
        self._meters: dict[_MeterKey, _Meter | TokenBucket] = {}
        #: the quota found for a client; cleared when quotas change
        self._found: dict[_MeterKey, _Meter | None] = {}
        #: whether there are no quotas of clients at all
        self.is_idle = True

    def set(self, entity: QuotaEntity, texts: Mapping[str, str]) -> None:
        """Replace the quotas of a user, a client id or both with those in the stored settings `texts`.

        Nothing changes if the entity is an address.
        """
        if entity.ip is not None:
            return
        key = entity.user, entity.client_id
        found = limits_of(texts)
        for kind, limits in self._limits.items():
            limits.pop(key, None)
            if kind in found:
                limits[key] = found[kind]
        self._found.clear()
        self.is_idle = not any(self._limits.values())

    def has(self, kind: QuotaKind) -> bool:
        """Whether any quota of this kind exists."""
        return bool(self._limits[kind])

    def charge(self, kind: QuotaKind, user: str, client_id: str, amount: float) -> float:
        """Count `amount` as used by a client.

        Return the seconds that the client must wait now. 0.0 if it need not wait or has no quota.

        The amount is in bytes. For request time, the amount is 100 for each second of the event loop's time.
        The wait for request time is at most the length of one sample, as in Kafka. For the other kinds, the
        wait is infinite if the limit is 0.
        """
        if not self._limits[kind]:
            return 0.0
        meter = self._meter(kind, user, client_id)
        if meter is None:
            return 0.0
        now = self._now()
        meter.rate.record(amount, now)
        delay = meter.rate.delay(meter.limit, now)
        return min(delay, self._windows.seconds) if kind is QuotaKind.REQUEST else delay

    def admit(self, kind: QuotaKind, user: str, client_id: str, amount: float) -> float:
        """Count the `amount` that a client wants to use, if its quota allows it now.

        Return 0.0 if the amount is allowed, or the client has no quota. If not, return the seconds to wait.

        Nothing is counted if the result is above 0. The client must then try again. An amount larger than
        the limit of a whole window is allowed when the window is empty.
        """
        if not self._limits[kind]:
            return 0.0
        meter = self._meter(kind, user, client_id)
        if meter is None:
            return 0.0
        now = self._now()
        counted = min(amount, self._in_window(meter.limit))
        delay = meter.rate.delay(meter.limit, now, more=counted) if amount else 0.0
        if delay <= 0:
            meter.rate.record(amount, now)
        return delay

    def max_at_once(self, kind: QuotaKind, user: str, client_id: str) -> float:
        """Return the amount that the quota allows in a whole window; infinity if the client has no quota."""
        meter = self._meter(kind, user, client_id) if self._limits[kind] else None
        return math.inf if meter is None else self._in_window(meter.limit)

    def mutations(self, user: str, client_id: str, *, strict: bool) -> Mutations | None:
        """Return a client's quota of partition creations and deletions, for one request.

        Return None if the client has no such quota.

        Args:
            user: the user of the client.
            client_id: the client id of the request.
            strict: whether to reject partitions above the quota. If false, they are only counted.
        """
        found = self._find(QuotaKind.MUTATION, user, client_id)
        if found is None:
            return None
        key, limit = found
        now = self._now()
        bucket = self._meters.get(key)
        if isinstance(bucket, TokenBucket):
            bucket.set_limit(limit, now)
        else:
            samples, seconds = self._mutation_windows
            bucket = TokenBucket(limit, samples * seconds, now)
            self._keep(key, bucket)
        return Mutations(bucket, self._now, strict=strict)

    def _in_window(self, limit: float) -> float:
        return limit * (self._windows.samples - 1) * self._windows.seconds

    def _meter(self, kind: QuotaKind, user: str, client_id: str) -> _Meter | None:
        asked = kind, user, client_id
        try:
            return self._found[asked]
        except KeyError:
            pass
        found = self._find(kind, user, client_id)
        meter = None
        if found is not None:
            key, limit = found
            known = self._meters.get(key)
            meter = known if isinstance(known, _Meter) else _Meter(Rate(*self._windows))
            meter.limit = limit
            if meter is not known:
                self._keep(key, meter)
        if len(self._found) >= _MAX_METERS:
            self._found.clear()
        self._found[asked] = meter
        return meter

    def _find(self, kind: QuotaKind, user: str, client_id: str) -> tuple[_MeterKey, float] | None:
        """Return the quota that applies to a client: the key of its meter, and its limit.

        If several quotas apply, return the first one in the order of `ClientQuotas`. Return None if no quota
        applies.
        """
        limits = self._limits[kind]
        for entity in (
            (user, client_id),
            (user, DEFAULT),
            (user, None),
            (DEFAULT, client_id),
            (DEFAULT, DEFAULT),
            (DEFAULT, None),
            (None, client_id),
            (None, DEFAULT),
        ):
            limit = limits.get(entity)
            if limit is not None:
                by_user, by_client_id = entity
                shared = (
                    user if by_user is not None else None,
                    client_id if by_client_id is not None else None,
                )
                return (kind, *shared), limit
        return None

    def _keep(self, key: _MeterKey, meter: _Meter | TokenBucket) -> None:
        if len(self._meters) >= _MAX_METERS:
            self._make_room()
        self._meters[key] = meter

    def _make_room(self) -> None:
        """Remove the meters without use in their window.

        If more than half of `_MAX_METERS` are left, also remove the half that was created first.
        """
        now = self._now()
        kept = {}
        for key, meter in self._meters.items():
            used = meter if isinstance(meter, TokenBucket) else meter.rate
            if not used.is_idle(now):
                kept[key] = meter
        if len(kept) > _MAX_METERS // 2:
            kept = dict(list(kept.items())[len(kept) // 2 :])
        self._meters = kept
        self._found.clear()
