"""Updates the leaders and ISRs of all partitions when brokers change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import NO_BROKER, BrokerId, LeaderEpoch, TopicId, TopicPartition
from barnabas.broker.controller.elections import state_of
from barnabas.broker.controller.eligibility import eligibility_of, incomplete_replicas
from barnabas.broker.controller.failed_dirs import FailedDirs
from barnabas.broker.controller.partition_changes import (
    Eligibility,
    alter_isr,
    candidates,
    elect_uncleanly,
    leave_isr,
    settle,
)
from barnabas.broker.controller.registration import check_registered
from barnabas.broker.controller.replica_logs import Ask
from barnabas.broker.controller.unclean_elections import UncleanElections
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.configs import ConfigResolver
from barnabas.broker.metadata.image import Admission, BrokerState, ClusterImage, ImageDelta, PartitionState
from barnabas.broker.metadata.loader import MetadataLoader
from barnabas.broker.metadata.store import Set, StoreError, StoreUnavailableError

log = logger_of(__name__)

#: partitions checked in one turn of the event loop; one that changes counts as several
_A_TURN = 1000
_WEIGHT_OF_CHANGE = 20
#: how many partitions a log line names
_NAMED = 5


class Change(NamedTuple):
    """A change of a partition's state (leader, ISR and epochs): the states before and after it."""

    partition: TopicPartition
    before: PartitionState
    after: PartitionState


class IsrProposal(NamedTuple):
    """A leader's proposal of a new ISR (KIP-497).

    A replica that cannot write any more can also send a proposal: the ISR without itself.

    Attributes:
        topic_id: id of the topic.
        partition: index of the partition.
        leader_epoch: leader epoch in the latest state that the sender knows.
        partition_epoch: partition epoch in the same state. It rises with each change of the state.
        isr: the proposed ISR: pairs of a broker and its broker epoch, which is -1 if the leader does not know
            it (KIP-903).
        is_recovering: whether the leader still recovers from an unclean election.
    """

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: Sequence[tuple[BrokerId, int]]
    is_recovering: bool = False


class PartitionControl:
    """Elects leaders, decides on the ISRs that leaders propose, and removes dead brokers from ISRs.

    A broker has a new epoch after each registration. The controller processes each epoch once, in four steps:

    1. Remove the broker from the ISR of all its partitions, because the broker must catch up.
    2. If the broker stopped uncleanly, remove the broker from the ELR of these partitions, too (KIP-966).
    3. If the broker has registered some of its replicas as incomplete, remove these from their ISR and ELR.
    4. Store that the controller has admitted this epoch.

    A newly elected controller repeats all steps that were not stored. So a re-registered broker leaves every
    ISR before the controller admits the broker's new epoch (KIP-380, KIP-903). The controller neither waits
    for a broker that is starting, nor elects it.

    Args:
        writes: writes to the metadata store while this broker is the controller.
        loader: loads this broker's image (copy) of the metadata.
        configs: resolves the effective settings of topics.
        unclean: elects leaders of partitions in which no replica certainly has all records.
        ask: sends a request to a broker. Called with the broker's id, which can be this broker's, and the
            request; returns the response, or raises BarnabasError.
        on_stuck: called when a write has failed: this controller has resigned, and must run for election
            again.
    """

    def __init__(
        self,
        writes: ControllerWrites,
        loader: MetadataLoader,
        configs: ConfigResolver,
        unclean: UncleanElections,
        ask: Ask,
        on_stuck: Callable[[], None],
    ) -> None:
        self._writes = writes
        self._loader = loader
        self._configs = configs
        self._unclean = unclean
        self._on_stuck = on_stuck
        self._failed_dirs = FailedDirs(loader, lambda: writes.is_controller, ask, self.begin)
        self._is_due = False
        self._settling: asyncio.Task[None] | None = None

    # --- what the brokers do ---

    def on_image(self, delta: ImageDelta) -> None:
        """If this broker is the controller, update all partitions after changes of brokers or settings.

        Also update them after a user has mended or restored the state of a partition. If brokers were only
        admitted, their partitions are up to date, and only unclean elections can have become possible.
        """
        self._failed_dirs.on_image(delta)
        if not self._writes.is_controller:
            return
        if _must_settle(delta) or delta.broker_configs or delta.topic_configs or _is_mended(delta):
            self.begin()
        elif delta.brokers:
            self._unclean.begin()

    def begin(self) -> None:
        """Start a task that updates leaders and ISRs of all partitions.

        If the task already runs, let it run once more.
        """
        self._is_due = True
        if self._settling is None or self._settling.done():
            self._settling = start_task(self._settle_while_due(), "partition leaders", is_vital=True)

    async def settled(self) -> None:
        """Wait until the task of `begin` has ended; return at once if it does not run.

        Then all leaders and ISRs fit the brokers in the metadata image, or this controller has resigned.
        """
        while self._settling is not None and not self._settling.done():
            await asyncio.shield(self._settling)

    async def caught_up(self) -> None:
        """Wait until all partitions are updated for every change that the metadata store has reported.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the store cannot be read.
        """
        try:
            await self._loader.settled()
        except StoreUnavailableError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        await self.settled()

    async def stop(self) -> None:
        await self._failed_dirs.stop()
        await stop_tasks(self._settling)

    async def _settle_while_due(self) -> None:
        while self._is_due and self._writes.is_controller:
            self._is_due = False
            try:
                await self._settle()
            except (KafkaError, StoreError) as error:
                log.warning("cannot update the partitions, so the controller resigns: %s", error)
                self._begin_again()

    def _begin_again(self) -> None:
        """Resign after a failed write. The next controller begins with the state of the metadata store."""
        self._writes.resign()
        self._on_stuck()

    async def _settle(self) -> None:
        async with self._writes.deciding() as image:
            changes = [change async for change in self._changes(image)]
            # Those without a leader serve no client until they have one.
            elections = [each for each in changes if each.after.leader_epoch != each.before.leader_epoch]
            await self._write(elections)
            await self._write([e for e in changes if e.after.leader_epoch == e.before.leader_epoch])
            await self._admit(image)
            if changes:
                await self._loader.settled()
        self._unclean.begin()
        self._failed_dirs.begin()
        _report(changes, len(elections))

    async def _changes(self, image: ClusterImage) -> AsyncIterator[Change]:
        eligible = eligibility_of(image)
        starting = {b.id for b in image.brokers.values() if b.state is BrokerState.STARTING}
        #: run, and are about to be admitted: nothing may be left of what they were before
        arriving = {
            b.id
            for b in image.brokers.values()
            if b.state is BrokerState.RUNNING and not image.is_admitted(b.id)
        }
        failed = self._failed_dirs.replicas()
        incomplete = incomplete_replicas(image, only_unadmitted=True)
        looked_at = 0
        for name, topic in sorted(image.topics.items()):
            config = self._configs.topic_config(image, name)
            min_isr = config.min_insync_replicas
            for number, state in enumerate(topic.partitions):
                looked_at += 1
                allowed = eligible
                if incomplete and (brokers := incomplete.get(TopicPartition(name, number))):
                    allowed = eligible.without(brokers)
                after = settle(state, min_isr, allowed)
                if failed and (brokers := failed.get(TopicPartition(name, number))):
                    moved = settle(after, min_isr, allowed.without(brokers))
                    # The last replica, with a failed directory, may still serve reads.
                    after = moved if moved.leader != NO_BROKER else after
                if after is not state:
                    looked_at += _WEIGHT_OF_CHANGE
                    after = _with_only_replica(after, state, allowed)
                    if (
                        after.leader == NO_BROKER
                        and state.leader in starting
                        and arriving.isdisjoint((*state.isr, *state.elr))
                    ):
                        after = state  # it serves no client yet: it is elected when it runs, by one change
                if after is not state:
                    yield Change(TopicPartition(name, number), state, after)
                if looked_at >= _A_TURN:
                    looked_at = 0
                    await asyncio.sleep(0)

    async def _write(self, changes: Sequence[Change]) -> list[int]:
        """Write the new state of each partition in `changes` to its node in the metadata store.

        Return the new version of each node, in the order of `changes`. This version is the partition epoch.

        Raises:
            KafkaError, StoreError: a write failed, for example because the state in the store has changed
                since this controller read it. Other changes may have been written.
        """
        return await self._writes.write_batches([self._writes.state_change(*each) for each in changes])

    async def _admit(self, image: ClusterImage) -> None:
        """Store that the registration of each running broker is admitted.

        The caller must have stored the new states of all partitions before.
        """
        admitted = dict(image.admitted)
        for broker in image.brokers.values():
            if broker.state is BrokerState.RUNNING:
                admitted[broker.id] = Admission(broker.epoch, broker.incarnation)
        if admitted != image.admitted:
            await self._writes.write([Set(znodes.BROKER_EPOCHS, znodes.encode_broker_epochs(admitted))])

    # --- what the leaders ask for ---

    async def alter(
        self, leader: BrokerId, broker_epoch: int, proposals: Sequence[IsrProposal]
    ) -> list[PartitionState | KafkaError]:
        """Change ISRs as the broker `leader` proposes (KIP-497).

        Return, in the order of `proposals`, the new state of each partition, or the error of a rejected
        proposal.

        Args:
            leader: sender of the proposals: the leader of the partitions, or a broker that requests to leave
                their ISRs.
            broker_epoch: the sender's broker epoch.
            proposals: one for each partition; a second one for a partition is rejected (INVALID_REQUEST).

        Raises:
            KafkaError: STALE_BROKER_EPOCH, the sender has registered again or is gone; NOT_CONTROLLER, this
                broker is not the controller, or cannot read or write the metadata store.
        """
        try:
            await self.caught_up()
            return await self._alter(leader, broker_epoch, proposals)
        except StoreError as error:
            log.error("cannot change an ISR, so the controller resigns: %s", error)
            self._begin_again()
            raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from error
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:  # the leader asks again, whoever decides then
                raise KafkaError(ErrorCode.NOT_CONTROLLER, error.message) from error
            raise

    async def _alter(
        self, leader: BrokerId, broker_epoch: int, proposals: Sequence[IsrProposal]
    ) -> list[PartitionState | KafkaError]:
        async with self._writes.deciding():
            self._writes.require_controller()
            try:
                image = await check_registered(self._loader, leader, broker_epoch)
            except KafkaError as error:
                raise KafkaError(ErrorCode.STALE_BROKER_EPOCH) from error
            results: list[PartitionState | KafkaError] = []
            changes: dict[int, Change] = {}
            changed: set[TopicPartition] = set()
            for index, proposal in enumerate(proposals):
                try:
                    change = self._altered(image, leader, proposal)
                    if change.partition in changed:
                        raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition is named twice")
                except KafkaError as error:
                    results.append(error)
                    continue
                results.append(change.before)
                changed.add(change.partition)
                if change.after != change.before:
                    changes[index] = change
            versions = await self._write(list(changes.values()))
            for (index, change), version in zip(changes.items(), versions, strict=True):
                results[index] = change.after._replace(partition_epoch=version)
            return results

    def _altered(self, image: ClusterImage, leader: BrokerId, proposal: IsrProposal) -> Change:
        """Return the partition that `proposal` names, with its states before and after the change.

        `leader` is the sender of the proposal: the partition's leader, or a replica that requests to leave
        the ISR.

        Raises:
            KafkaError: UNKNOWN_TOPIC_ID, no topic has the id; INELIGIBLE_REPLICA, the sender requests to
                leave the ISR, but no other replica can lead; the errors of `state_of`, and those of
                `check_proposal` for a wrong epoch or ISR.
        """
        topic = image.topic_by_id(proposal.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = TopicPartition(topic.name, proposal.partition)
        state = state_of(image, partition)
        check_proposal(image, leader, state, proposal)
        min_isr = self._configs.topic_config(image, topic.name).min_insync_replicas
        isr = tuple(broker for broker, _ in proposal.isr)
        after: PartitionState | None
        if leader in isr:
            after = alter_isr(state, isr, min_isr, is_recovering=proposal.is_recovering)
        else:
            after = leave_isr(state, leader, min_isr, eligibility_of(image).electable)
        if after is None:
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, "no other replica in sync can lead now")
        return Change(partition, state, after)


def _must_settle(delta: ImageDelta) -> bool:
    """Whether a broker has changed in another way than that the controller has admitted it."""
    before, after = delta.before, delta.after
    return delta.brokers and (
        before.brokers != after.brokers
        or any(before.is_admitted(broker) > after.is_admitted(broker) for broker in after.brokers)
    )


def _is_mended(delta: ImageDelta) -> bool:
    changes = (
        (delta.before.partition(each), delta.after.partition(each)) for each in delta.changed_partitions()
    )
    return any(before and after and after.is_known > before.is_known for before, after in changes)


def check_proposal(
    image: ClusterImage, leader: BrokerId, state: PartitionState, proposal: IsrProposal
) -> None:
    """Check a proposal for the ISR of a partition.

    `leader` is the broker that sent it: the partition's leader, or an in-sync replica that leaves the ISR.
    `state` is the present state of the partition.

    Raises:
        KafkaError: as in Kafka: NOT_CONTROLLER, the proposal has a higher epoch than `state`;
            FENCED_LEADER_EPOCH, it has a lower leader epoch; INVALID_UPDATE_VERSION, it has a lower partition
            epoch; INVALID_REQUEST, `leader` may not propose this ISR; INELIGIBLE_REPLICA, a broker in the
            proposed ISR cannot be in sync now.
    """
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)  # the leader knows of a newer one's decisions
    if proposal.leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    isr = dict(proposal.isr)
    leaves = bool(isr) and set(isr) == set(state.isr) - {leader} != set(state.isr)
    if leader != state.leader and not leaves:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {leader} does not lead the partition")
    if proposal.partition_epoch < state.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    if len(proposal.isr) > len(state.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "the proposed ISR has more members than there are replicas"
        )
    if len(isr) < len(proposal.isr) or not isr.keys() <= set(state.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "the proposed ISR names a broker twice, or one that has no replica"
        )
    if leaves:
        return
    if leader not in isr:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the leader is not in the proposed ISR")
    if proposal.is_recovering and (len(isr) > 1 or not state.recovering):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no replica is in sync with a leader that recovers")
    for broker, epoch in isr.items():
        if broker == leader:
            continue  # it stays leader while it shuts down if no other broker can lead
        registered = image.brokers.get(broker)
        if (
            registered is None
            or registered.state is not BrokerState.RUNNING
            or registered.is_isolated
            or not image.is_admitted(broker)
            or epoch not in (-1, registered.epoch)
        ):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker} cannot join now")


def _with_only_replica(
    after: PartitionState, before: PartitionState, eligible: Eligibility
) -> PartitionState:
    """If the partition has only one replica, return `after` with this replica as the leader.

    This is safe, because no other replica can have more records. The new leader epoch is the next one after
    the epoch in `before`, the state before the change. Return `after` unchanged if the partition has several
    replicas or a leader, or if its replica cannot be elected.
    """
    if len(after.replicas) == 1 and candidates(after, eligible.electable):
        return elect_uncleanly(after, after.replicas[0])._replace(leader_epoch=before.leader_epoch + 1)
    return after


def _report(changes: Sequence[Change], elections: int) -> None:
    if not changes:
        return
    log.info("elected leaders for %d partitions, shrank the ISR of %d", elections, len(changes) - elections)
    leaderless = [str(each.partition) for each in changes if each.after.leader == NO_BROKER]
    if leaderless:
        more = ", ..." if len(leaderless) > _NAMED else ""
        log.warning(
            "%d partitions have no leader, because no broker with an in-sync replica runs: %s%s",
            len(leaderless),
            ", ".join(leaderless[:_NAMED]),
            more,
        )
