"""One transactional id and its producer, with transactions v1 or v2."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.base.environment.clock import Clock
from barnabas.base.errors import ErrorCode
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.kafka.protocol.messages.end_txn import EndTxnRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from soak.roles.common import Draft, Offsets, Transactions, Writer
from soak.simulated.client import GROUP, TRANSACTION, Client, GaveUp, Place, is_retriable, name_of
from soak.simulated.sender import Sender

_FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
_AGAIN = frozenset({int(ErrorCode.CONCURRENT_TRANSACTIONS)})


class Unfinished(Exception):
    """The transaction cannot be committed; the client must abort it."""


class TransactionalProducer:
    """Begins, fills and ends the transactions of one transactional id, one at a time.

    Args:
        is_v2: whether to use transactions v2 (KIP-890): Produce adds the partitions, and each end raises the
            producer epoch.
    """

    def __init__(self, client: Client, writer: Writer, clock: Clock, *, is_v2: bool) -> None:
        self._client = client
        self._writer = writer
        self._clock = clock
        self._is_v2 = is_v2
        self._transactions = Transactions(client.recorder)
        self._sender: Sender
        self._added: set[Place] = set()
        self._is_empty = True
        #: whether sequences are in doubt, so that a new epoch is needed (KIP-360)
        self._is_in_doubt = False

    @property
    def id(self) -> str:
        return self._client.task.transactional_id

    async def init(self) -> None:
        """Initialise the producer (InitProducerId).

        Raises:
            GaveUp: another client has taken the transactional id.
        """
        await self._client.find_coordinator(self.id, TRANSACTION)
        await self._init(-1, -1)
        self._client.recorder.note("inited")

    def begin(self) -> int:
        self._added.clear()
        self._is_empty = True
        return self._transactions.begin()

    async def send(self, drafts: Iterable[Draft]) -> None:
        """Send records, one batch for each partition.

        Raises:
            Unfinished: the transaction must be aborted.
            GaveUp: another client has taken the transactional id.
        """
        by_place: dict[Place, list[Draft]] = {}
        for draft in drafts:
            by_place.setdefault(draft.place, []).append(draft)
        if not self._is_v2:
            try:
                await self._add(place for place in by_place if place not in self._added)
            except (Unfinished, GaveUp) as error:
                for batch in by_place.values():
                    for draft in batch:
                        self._writer.failed(draft.id, error, unknown=False)
                raise
        self._is_empty = False
        for place, batch in by_place.items():
            self._sender.put(place, batch)

    async def flush(self) -> None:
        """Wait until the brokers have stored all records.

        Raises:
            Unfinished: the transaction must be aborted.
            GaveUp: another client has taken the transactional id.
        """
        if not await self._sender.flush():
            code = self._sender.refused
            assert code is not None
            self._is_in_doubt = True
            if code in _FENCED:
                raise GaveUp(f"fenced: {code.name}")
            raise Unfinished(code.name)

    async def add_offsets(self, offsets: Offsets, *, generation: int, member: str) -> None:
        """Add a group's offsets to the transaction.

        Raises:
            Unfinished: the transaction must be aborted.
            GaveUp: another client has taken the transactional id.
        """
        group = self._client.task.group
        self._transactions.offsets(group, offsets)
        if not self._is_v2:
            response = await self._client.insist(
                lambda: AddOffsetsToTxnRequest(transactional_id=self.id, group_id=group, **self._identity()),
                lambda response: [response.error_code],
                of=(TRANSACTION, self.id),
            )
            self._judge([response.error_code])
        self._is_empty = False
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group,
            generation_id=generation,
            member_id=member,
            topics=[
                TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
            **self._identity(),  # type: ignore[arg-type]
        )
        try:
            response = await self._client.insist(
                lambda: request,
                lambda response: [p.error_code for t in response.topics for p in t.partitions],
                of=(GROUP, group),
                max_version=5 if self._is_v2 else 4,
                patient=self._is_v2,
            )
        except ChannelError as error:
            # With transactions v1 it may come late, into the next transaction.
            self._is_in_doubt = True
            raise Unfinished(str(error)) from error
        self._judge(p.error_code for t in response.topics for p in t.partitions)

    async def commit(self) -> None:
        """Commit the transaction.

        Raises:
            GaveUp: the outcome is unknown.
        """
        await self._end(commit=True)

    async def abort(self) -> None:
        await self._end(commit=False)

    # --- inside ---

    def _identity(self) -> dict[str, int]:
        return {"producer_id": self._sender.producer_id, "producer_epoch": self._sender.producer_epoch}

    async def _init(self, producer_id: int, epoch: int) -> None:
        def request() -> InitProducerIdRequest:
            # Each counts on its own: one without an answer may take effect late.
            self._client.recorder.note("init")
            return InitProducerIdRequest(
                transactional_id=self.id,
                transaction_timeout_ms=self._client.task.transaction_timeout_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
            )

        response = await self._client.insist(
            request,
            lambda response: [response.error_code],
            of=(TRANSACTION, self.id),
            again=_AGAIN,
            give_up=lambda: self._client.stopping and producer_id < 0,
        )
        if response is None:
            raise GaveUp("stopped before it had its transactional id")
        if response.error_code:
            raise GaveUp(f"init: {name_of(response.error_code)}")
        self._renew(response.producer_id, response.producer_epoch)

    def _renew(self, producer_id: int, epoch: int) -> None:
        self._is_in_doubt = False
        self._sender = Sender(
            self._client,
            self._writer,
            self._clock,
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional_id=self.id,
            max_version=(13 if self._client.by_id else 12) if self._is_v2 else 11,
        )

    async def _add(self, places: Iterable[Place]) -> None:
        wanted = list(places)
        by_topic: dict[str, list[int]] = {}
        for topic, partition in wanted:
            by_topic.setdefault(topic, []).append(partition)
        if not wanted:
            return
        response = await self._client.insist(
            lambda: AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=self._sender.producer_id,
                v3_and_below_producer_epoch=self._sender.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                    for topic, numbers in by_topic.items()
                ],
            ),
            lambda response: [
                p.partition_error_code
                for t in response.results_by_topic_v3_and_below
                for p in t.results_by_partition
            ],
            of=(TRANSACTION, self.id),
            max_version=3,
            again=_AGAIN,
        )
        # What was added counts, even if the rest was not.
        self._is_empty = False
        self._judge(
            p.partition_error_code
            for t in response.results_by_topic_v3_and_below
            for p in t.results_by_partition
        )
        self._added.update(wanted)

    def _judge(self, codes: Iterable[int]) -> None:
        for code in codes:
            if code in _FENCED:
                raise GaveUp(f"fenced: {name_of(code)}")
            if code:
                raise Unfinished(name_of(code))

    async def _end(self, *, commit: bool) -> None:
        self._transactions.end(commit=commit)
        if self._is_empty:
            self._transactions.ended(commit=commit)
            return
        tried = 0
        while True:
            tried += 1
            try:
                response = await self._client.ask_coordinator(
                    TRANSACTION,
                    self.id,
                    EndTxnRequest(transactional_id=self.id, committed=commit, **self._identity()),
                    max_version=5 if self._is_v2 else 4,
                )
            except ChannelError as error:
                if not self._is_v2 and error.may_have_been_carried_out:
                    # With transactions v1 a repeated EndTxn that comes late would end the next transaction
                    # (KIP-890): only a new epoch keeps it out.
                    self._transactions.ended(commit=commit, error=error)
                    raise GaveUp(f"end: {error}") from error
                await self._client.back_off()
                continue
            code = response.error_code
            self._client.note_code(code, "EndTxn")
            if not code:
                break
            if not is_retriable(code):
                self._transactions.ended(commit=commit, error=name_of(code))
                raise GaveUp(f"end: {name_of(code)}")
            await self._client.back_off()
        self._transactions.ended(commit=commit)
        if self._is_v2:
            self._renew(response.producer_id, response.producer_epoch)
        elif self._is_in_doubt:
            await self._init(self._sender.producer_id, self._sender.producer_epoch)
