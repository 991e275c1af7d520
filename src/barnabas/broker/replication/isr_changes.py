"""Sends the ISR changes that this broker's leaders propose to the controller (AlterPartition, KIP-497)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from barnabas.base.errors import BarnabasError, ErrorCode, KafkaError, error_code
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import TopicId
from barnabas.broker.metadata.image import ImageDelta, PartitionState
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partition.in_sync import Proposal
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
)

log = logger_of(__name__)

#: most partitions in one request: its response is applied in one turn of the event loop
MAX_PARTITIONS = 500
#: pause in seconds after a request that failed as a whole; doubled after each, up to the longest
FIRST_PAUSE, MAX_PAUSE = 0.05, 0.5
#: seconds for which a partition proposes nothing after a rejected proposal
REFUSED_PAUSE = 0.5

_RECOVERING = 1


class IsrChanges:
    """Sends proposed ISRs to the controller, one request at a time for all partitions with a proposal.

    A proposal is computed when the request is sent, so a repeated request has the leader's latest proposal.
    Any answer ends the proposal (`Partition.settle_proposal`), and the partition can propose again:

    - NONE: the ISR and the partition epoch in the answer are valid.
    - INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED: nothing was changed.
    - FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, NEW_LEADER_ELECTED, UNKNOWN_TOPIC_ID,
      UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST: the controller has a later leader or ISR, which the image
      will show. Until then the high watermark waits for the proposed replicas.
    - NOT_CONTROLLER, STALE_BROKER_EPOCH, any other error of the whole request, no answer: the high
      watermark waits for the proposed replicas. All partitions propose again after a pause. If the cluster
      has another controller, no answer of the former one is awaited (`follow`).

    FENCED_LEADER_EPOCH also ends this broker's leadership of the partition, and STALE_BROKER_EPOCH ends all
    of its leaderships (`on_stale`), because other brokers may lead already.

    Args:
        view: settings of this broker, and its image (copy) of the cluster's metadata.
        send: sends a request to the controller; raises KafkaError or ChannelError.
        on_stale: called with this broker's epoch when the controller says that it has ended.
    """

    def __init__(
        self,
        view: BrokerView,
        send: Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]],
        on_stale: Callable[[int], None] = lambda epoch: None,
    ) -> None:
        self._view = view
        self._send = send
        self._on_stale = on_stale
        self._due: dict[Partition, None] = {}
        #: partitions with a recently rejected proposal, with the timer that adds them again
        self._put_off: dict[Partition, asyncio.TimerHandle] = {}
        self._task: asyncio.Task[None] | None = None
        #: the request that waits for its answer
        self._sending: asyncio.Future[AlterPartitionResponse] | None = None
        self._is_failing = False
        self._is_stopped = False
        #: how often an ISR lost members, got new ones, or stayed because a proposal was rejected
        self.shrinks = self.expands = self.failures = 0

    def add(self, partition: Partition) -> None:
        """Send the proposal of a partition soon. After a rejected proposal, wait `REFUSED_PAUSE` first."""
        if partition in self._put_off or self._is_stopped:
            return
        self._due[partition] = None
        if self._task is None:
            self._task = start_task(self._run(), "ISR changes", is_vital=True)

    def follow(self, delta: ImageDelta) -> None:
        """Send the proposals again if the cluster has another controller after `delta`.

        A machine that has lost its power answers nothing, and does not end its connections.
        """
        if self._sending is not None and delta.before.controller_id != delta.after.controller_id:
            self._sending.cancel()

    async def stop(self) -> None:
        """Send no more requests."""
        self._is_stopped = True
        for timer in self._put_off.values():
            timer.cancel()
        self._put_off.clear()
        self._due.clear()
        await stop_tasks(self._task)

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        try:
            while self._due:
                proposals = self._pop_proposals()
                if not proposals:
                    continue
                if await self._ask(proposals):
                    pause = FIRST_PAUSE
                else:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, MAX_PAUSE)
        finally:
            self._task = None

    def _pop_proposals(self) -> dict[Partition, Proposal]:
        proposals = {}
        for partition in list(self._due):
            del self._due[partition]
            proposal = partition.propose()
            if proposal is not None:
                proposals[partition] = proposal
                if len(proposals) == MAX_PARTITIONS:
                    break
        return proposals

    async def _ask(self, proposals: dict[Partition, Proposal]) -> bool:
        """Send the proposed ISRs of partitions to the controller in one request, and apply its answers.

        Return False if the whole request failed. All partitions then propose again.
        """
        answers: dict[tuple[TopicId, int], PartitionResult] = {}
        failure = None
        request = self._request(proposals)
        try:
            response = await self._answer(request)
            if response.error_code:
                raise KafkaError(error_code(response.error_code))
            answers = {(t.topic_id, p.partition_index): p for t in response.topics for p in t.partitions}
        except BarnabasError as error:
            failure = error
            if not self._is_failing:
                log.warning("the controller does not answer requests to change ISRs: %s", error)
        self._is_failing = failure is not None
        if isinstance(failure, KafkaError) and failure.code == ErrorCode.STALE_BROKER_EPOCH:
            self._on_stale(request.broker_epoch)
        for partition, proposal in proposals.items():
            if failure is None:
                key = partition.log.topic_id, partition.topic_partition.partition
                self._settle(partition, proposal, answers.get(key))
            else:
                partition.settle_proposal(proposal, None)
                self._due[partition] = None
        return failure is None

    async def _answer(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        sending = self._sending = asyncio.ensure_future(self._send(request))
        try:
            await asyncio.wait([sending])
        finally:
            self._sending = None
            sending.cancel()
        if sending.cancelled():
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "another broker has become the controller")
        return sending.result()

    def _settle(self, partition: Partition, proposal: Proposal, answer: PartitionResult | None) -> None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else error_code(answer.error_code)
        if answer is not None and code == ErrorCode.NONE:
            log.info("%r: the ISR is %s", partition, answer.isr)
            before, after = set(partition.state.isr), set(answer.isr)
            self.shrinks += bool(before - after)
            self.expands += bool(after - before)
            partition.settle_proposal(proposal, code, _state_after(partition.state, answer))
            return
        if code == ErrorCode.NEW_LEADER_ELECTED:
            self.shrinks += 1
            log.info("%r: this broker has left the ISR, and another replica was elected", partition)
        else:
            self.failures += 1
            log.info(
                "%r: the controller rejected the ISR %s: %s", partition, list(proposal.members), code.name
            )
        self._due.pop(partition, None)
        loop = asyncio.get_running_loop()
        self._put_off[partition] = loop.call_later(REFUSED_PAUSE, self._take_up, partition)
        partition.settle_proposal(proposal, code)
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            partition.overtaken(proposal.leader_epoch + 1)

    def _take_up(self, partition: Partition) -> None:
        del self._put_off[partition]
        self.add(partition)

    def _request(self, proposals: dict[Partition, Proposal]) -> AlterPartitionRequest:
        topics: dict[TopicId, TopicData] = {}
        for partition, proposal in proposals.items():
            topic_id = partition.log.topic_id
            topic = topics.setdefault(topic_id, TopicData(topic_id=topic_id))
            topic.partitions.append(
                PartitionData(
                    partition_index=partition.topic_partition.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr=list(proposal.members),
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker, broker_epoch=epoch) for broker, epoch in proposal.isr
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._view.node_id, broker_epoch=self._view.broker_epoch, topics=list(topics.values())
        )


def _state_after(state: PartitionState, answer: PartitionResult) -> PartitionState:
    return state._replace(
        isr=tuple(answer.isr),
        leader=answer.leader_id,
        leader_epoch=answer.leader_epoch,
        partition_epoch=answer.partition_epoch,
        recovering=answer.leader_recovery_state == _RECOVERING,
    )
