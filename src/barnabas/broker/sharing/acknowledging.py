"""The acknowledgements of one request, on their way into the stored state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.sharing.in_flight import RENEW, Acknowledgement
from barnabas.broker.sharing.sessions import Member, Target
from barnabas.broker.sharing.share_partitions import SharePartitions

#: how many elements the acknowledgements of one partition may have: more than there can be records in flight
MOST_ELEMENTS = 20_000


class Acknowledging:
    """The acknowledgements of a member in one request. All those of a partition are accepted, or none.

    Args:
        member: who acknowledges.
        partitions: finds the share partitions.
        refuses: the error for a partition that the client may not read.
        may_renew: whether the group, and the version of the request, have renewals (KIP-1222).
        wanted: the acknowledgements by partition.
    """

    def __init__(
        self,
        member: Member,
        partitions: SharePartitions,
        refuses: Callable[[Target], KafkaError | None],
        may_renew: bool,
        wanted: Sequence[tuple[Target, Sequence[Acknowledgement]]],
    ) -> None:
        self._member = member
        self._partitions = partitions
        self._refuses = refuses
        self._may_renew = may_renew
        self._wanted = wanted
        #: the outcomes; of what is not stored yet, the one if that succeeds
        self.outcomes: dict[Target, KafkaError | None] = {}
        self._unstored = 0
        self._then: Callable[[], object] | None = None

    @property
    def elements(self) -> int:
        """The number of acknowledgements and of their types."""
        return sum(_elements(acknowledgements) for _, acknowledgements in self._wanted)

    @property
    def is_stored(self) -> bool:
        """Whether all outcomes are known."""
        return not self._unstored

    def steps(self) -> Iterator[None]:
        """Make all acknowledgements, those of one partition in each step."""
        for target, acknowledgements in self._wanted:
            try:
                if target in self.outcomes:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names a partition twice")
                stored = self._acknowledge(target, acknowledgements)
            except KafkaError as error:
                self.outcomes.setdefault(target, error)
            else:
                self.outcomes[target] = None
                if stored is not None:
                    self._unstored += 1
                    stored.add_done_callback(partial(self._settle, target))
            yield

    def when_stored(self, then: Callable[[], object]) -> None:
        """Call `then` as soon as all outcomes are known, maybe at once."""
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
        if _elements(acknowledgements) > MOST_ELEMENTS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a partition has more than {MOST_ELEMENTS} elements")
        if not self._may_renew and any(RENEW in each.types for each in acknowledgements):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "locks cannot be renewed")
        group, member_id = self._member
        return self._partitions.get(group, *target).acknowledge(member_id, acknowledgements)

    def _settle(self, target: Target, stored: asyncio.Future[None]) -> None:
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
