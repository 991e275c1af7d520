"""Bugs of share groups to plant: each switches off one rule of share partitions or of their stored states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from barnabas.base.errors import KafkaError
from barnabas.broker.coordinator.share_state import shard
from barnabas.broker.coordinator.share_state.persister import StateBatch
from barnabas.broker.server.dead_letters.queue import LetterWriter
from barnabas.broker.sharing.acknowledging import Acknowledging
from barnabas.broker.sharing.dead_lettering import DeadLettering
from barnabas.broker.sharing.in_flight import ARCHIVED, ARCHIVING, AVAILABLE, DeadLetters, InFlight
from barnabas.broker.sharing.reading import LogBatches
from barnabas.broker.sharing.share_partition import SharePartition
from soak.simulated.bugs import Bugs, adding, replaced

#: by name: what each does, and how it is planted; those of a single broker, and those of clusters only
SHARE_BUGS: Bugs = {}
SHARE_CLUSTER_BUGS: Bugs = {}
_bug, _cluster_bug = adding(SHARE_BUGS), adding(SHARE_CLUSTER_BUGS)


@_bug("share-answered-early", "acknowledgements are answered before they are stored")
def _answered_early() -> Iterator[None]:
    with replaced((Acknowledging, "is_stored", property(lambda self: True))):
        yield


@_bug("share-locks-short", "locks end a second too early")
def _locks_short() -> Iterator[None]:
    expire = InFlight.expire
    with replaced(
        (InFlight, "expire", lambda self, now: expire(self, now + 1.0)),
        (
            SharePartition,
            "lock_seconds",
            property(lambda self: self.config.share_record_lock_duration_ms / 1000 - 1),
        ),
    ):
        yield


@_bug("share-locks-kept", "locks never end")
def _locks_kept() -> Iterator[None]:
    with replaced(
        (InFlight, "expire", lambda self, now: 0),
        (InFlight, "end_session", lambda self, member: False),
    ):
        yield


@_bug("share-owner-unchecked", "a member acknowledges records that it does not have any more")
def _owner_unchecked() -> Iterator[None]:
    with replaced((InFlight, "_check_owner", lambda self, member, parts: None)):
        yield


@_bug("share-limit-ignored", "records are delivered again without a limit")
def _limit_ignored() -> Iterator[None]:
    with replaced((InFlight, "_released_state", lambda self, each: AVAILABLE)):
        yield


@_bug("share-counts-lost", "the next leader counts deliveries from zero")
def _counts_lost() -> Iterator[None]:
    restored = InFlight.restored

    def from_zero(state: Any, limits: Any, log_end: int) -> InFlight:
        batches = tuple(each._replace(delivery_count=0) for each in state.batches)
        return restored(state._replace(batches=batches), limits, log_end)

    with replaced((InFlight, "restored", staticmethod(from_zero))):
        yield


@_bug("share-states-lost", "the next leader knows the stored start offset, and no states of records")
def _states_lost() -> Iterator[None]:
    restored = InFlight.restored

    def without_batches(state: Any, limits: Any, log_end: int) -> InFlight:
        return restored(state._replace(batches=()), limits, log_end)

    with replaced((InFlight, "restored", staticmethod(without_batches))):
        yield


@_bug("share-aborted-delivered", "a read_committed group gets the records of aborted transactions")
def _aborted_delivered() -> Iterator[None]:
    begin = LogBatches.__init__

    with replaced((LogBatches, "__init__", lambda self, chunk, aborted=(): begin(self, chunk))):
        yield


@_bug("share-unstable-delivered", "a read_committed group gets records of open transactions")
def _unstable_delivered() -> Iterator[None]:
    with replaced((SharePartition, "_bound", lambda self, config: self.partition.log.high_watermark)):
        yield


@_bug("share-gaps-not-stored", "a start offset that has moved behind gaps alone is not stored")
def _gaps_not_stored() -> Iterator[None]:
    with replaced((SharePartition, "_store_gaps", lambda self: None)):
        yield


@_cluster_bug(
    "share-leader-epoch-unchecked", "the share coordinator also serves former leaders of a partition"
)
def _leader_epoch_unchecked() -> Iterator[None]:
    with replaced((shard, "_check_leader_epoch", lambda state, leader_epoch: None)):
        yield


@_cluster_bug("dead-letter-twice", "the next leader does not look for the dead letters of its predecessor")
def _letter_twice() -> Iterator[None]:
    begin = LetterWriter.__init__

    def without_doubt(self: LetterWriter, *arguments: Any) -> None:
        begin(self, *arguments)
        self._is_in_doubt = False

    with replaced((LetterWriter, "__init__", without_doubt)):
        yield


@_cluster_bug("dead-letter-made-anew", "a batch of dead letters without an answer is made anew")
def _letter_made_anew() -> Iterator[None]:
    def forget(self: LetterWriter, error: KafkaError, was_uncertain: bool) -> None:
        self._sent = self._sequence = None

    with replaced((LetterWriter, "_failed", forget)):
        yield


@_cluster_bug("dead-letter-of-former-leader", "a former leader that has missed its successor writes again")
def _letter_of_former_leader() -> Iterator[None]:
    async def unchecked(self: SharePartition) -> None:
        return

    with replaced((SharePartition, "_check_leader", unchecked)):
        yield


@_bug("dead-letter-lost", "a record whose dead letter is refused is archived")
def _letter_lost() -> Iterator[None]:
    attempt = DeadLettering._attempt

    async def given_up(self: DeadLettering, due: Sequence[DeadLetters]) -> Sequence[tuple[int, int]]:
        return await attempt(self, due) or [(each.first, each.last) for each in due]

    with replaced((DeadLettering, "_attempt", given_up)):
        yield


@_bug("dead-letter-after-archived", "a record is stored as archived before its dead letter is written")
def _letter_after_archived() -> Iterator[None]:
    stored = InFlight._stored

    def archived(self: InFlight, spans: Sequence[tuple[int, int]]) -> tuple[StateBatch, ...]:
        return tuple(
            each._replace(delivery_state=ARCHIVED) if each.delivery_state == ARCHIVING else each
            for each in stored(self, spans)
        )

    with replaced((InFlight, "_stored", archived)):
        yield
