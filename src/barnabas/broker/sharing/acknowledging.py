"""Applies the acknowledgements of one request of a share group's member, and waits until they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.sharing.in_flight import RENEW, Acknowledgement
from barnabas.broker.sharing.sessions import Member, Target
from barnabas.broker.sharing.share_partitions import SharePartitions

#: limit for the acknowledgements of one partition and their types; more than records can be in flight
MAX_ELEMENTS = 20_000


class Acknowledging:
    """The acknowledgements of a member in one request.

    If one acknowledgement for a partition is invalid, no acknowledgement of the request is applied in this
    partition. The acknowledgements for other partitions are applied.

    Args:
        member: the member that sent the request.
        partitions: finds the share partitions.
        refuses: returns the error for a partition that the client may not read, None for any other.
        may_renew: whether the group and the version of the request allow renewals (KIP-1222).
        by_target: each partition of the request, with its acknowledgements.
    """

    def __init__(
        self,
        member: Member,
        partitions: SharePartitions,
        refuses: Callable[[Target], KafkaError | None],
        may_renew: bool,
        by_target: Sequence[tuple[Target, Sequence[Acknowledgement]]],
    ) -> None:
        self._member = member
        self._partitions = partitions
        self._refuses = refuses
        self._may_renew = may_renew
        self._by_target = by_target
        #: the error for each partition, or None; also None while the acknowledgements are being stored
        self.outcomes: dict[Target, KafkaError | None] = {}
        self._unstored = 0
        self._then: Callable[[], object] | None = None

    @property
    def elements(self) -> int:
        """The size of the request: the number of acknowledgements, plus the number of types in all of them.

        An acknowledgement has one type for all of its records, or one type for each record.
        """
        return sum(_elements(acknowledgements) for _, acknowledgements in self._by_target)

    @property
    def is_stored(self) -> bool:
        """Whether every accepted acknowledgement is stored, or has failed to be stored."""
        return not self._unstored

    def steps(self) -> Iterator[None]:
        """Apply all acknowledgements, and begin to store them.

        The iterator yields None after each partition, so that the caller can let the event loop serve
        requests. `outcomes` gets the error of each partition; None for a partition without an error. The
        iterator raises no KafkaError.
        """
        for target, acknowledgements in self._by_target:
            try:
                if target in self.outcomes:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names a partition twice")
                stored = self._acknowledge(target, acknowledgements)
            except KafkaError as error:
                self.outcomes[target] = self.outcomes.get(target) or error
            else:
                self.outcomes[target] = None
                if stored is not None:
                    self._unstored += 1
                    stored.add_done_callback(partial(self._on_stored, target))
            yield

    def when_stored(self, then: Callable[[], object]) -> None:
        """Call `then` when `is_stored` becomes true, or at once if it is true already.

        Call this method only after the last of the `steps`, and only once.
        """
        if self.is_stored:
            then()
        else:
            self._then = then

    def _acknowledge(
        self, target: Target, acknowledgements: Sequence[Acknowledgement]
    ) -> asyncio.Future[None] | None:
        error = self._refuses(target)
        if error is not None:
            raise error
        if _elements(acknowledgements) > MAX_ELEMENTS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a partition has more than {MAX_ELEMENTS} elements")
        if not self._may_renew and any(RENEW in each.types for each in acknowledgements):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "locks cannot be renewed")
        group, member_id = self._member
        return self._partitions.get(group, *target).acknowledge(member_id, acknowledgements)

    def _on_stored(self, target: Target, stored: asyncio.Future[None]) -> None:
        error = None if stored.cancelled() else stored.exception()
        if isinstance(error, KafkaError):
            self.outcomes[target] = error
        elif stored.cancelled() or error is not None:
            self.outcomes[target] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._unstored -= 1
        if not self._unstored and self._then is not None:
            self._then()


def _elements(acknowledgements: Sequence[Acknowledgement]) -> int:
    return sum(1 + len(each.types) for each in acknowledgements)
