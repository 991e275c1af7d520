"""The typed records that a shard replays, and the bytes in its log, give the same state.

Random operations run on a coordinator whose log sometimes waits and sometimes fails. A second shard, the
witness, replays only the typed records. A second coordinator loads the log's bytes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.virtual_time import run_virtual
from tests.effort import examples

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ProducerIdentity
from barnabas.broker.coordinator import ConsumerGroup, ShareGroup
from barnabas.broker.coordinator.groups.codec import NO_EXPIRY, CommittedOffset, OffsetKey, offset_record
from barnabas.broker.coordinator.groups.shard import GroupShard
from barnabas.broker.coordinator.share_state.persister import SharePartitionKey
from barnabas.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.kafka.records.control import EndTransaction

CLASSIC, CONSUMER, SHARE, BOTH = "classic", "consumer", "share", "both"
TOPICS = ("t", "u")

numbers = st.integers(0, 3)
log_steps = st.sampled_from(["wait", "fail", "go on", "commit the oldest", "fail the oldest"])
group_steps = st.one_of(
    st.tuples(st.just("log"), log_steps),
    st.tuples(st.just("commit"), st.sampled_from([CLASSIC, CONSUMER, BOTH, "alone"]), numbers, st.booleans()),
    st.tuples(st.just("commit in transaction"), numbers, numbers),
    st.tuples(st.just("end transaction"), numbers, st.booleans()),
    st.tuples(st.just("join"), st.sampled_from([CLASSIC, BOTH]), numbers),
    st.tuples(st.just("sync"), st.sampled_from([CLASSIC, BOTH]), numbers),
    st.tuples(st.just("rebalance"), st.sampled_from([CLASSIC, BOTH])),
    st.tuples(st.just("leave"), st.sampled_from([CLASSIC, BOTH]), numbers),
    st.tuples(st.just("beat"), st.sampled_from([CONSUMER, BOTH]), numbers, st.booleans()),
    st.tuples(st.just("quit"), st.sampled_from([CONSUMER, BOTH]), numbers),
    st.tuples(st.just("share"), numbers),
    st.tuples(st.just("stop sharing"), numbers),
    st.tuples(st.just("persister"), st.sampled_from(["wait", "fail", "go on"])),
    st.tuples(st.just("alter"), numbers),
    st.tuples(st.just("delete states"), numbers),
    st.tuples(st.just("delete offsets"), st.sampled_from([CLASSIC, CONSUMER, "alone"]), numbers),
    st.tuples(st.just("delete"), st.sampled_from([CLASSIC, CONSUMER, SHARE, BOTH, "alone"])),
    st.tuples(st.just("sleep"), st.sampled_from([0, 1, 5, 60, 86_400])),
)


class Driver:
    """Executes the steps. It uses the answer of a request only if the next request needs it."""

    def __init__(self, groups: Any) -> None:
        self.groups = groups
        #: by group and number: the member id, and the last answer to its JoinGroup or heartbeat
        self.ids: dict[tuple[str, int], str] = {}
        self.answers: dict[tuple[str, int], Any] = {}
        self.tasks: list[asyncio.Task[Any]] = []

    async def do(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        await getattr(self, "_" + name.replace(" ", "_"))(*arguments)
        for _ in range(5):
            await asyncio.sleep(0)

    def _note(self, who: tuple[str, int], task: asyncio.Task[Any]) -> None:
        def note(done: asyncio.Task[Any]) -> None:
            if done.cancelled():
                return
            if done.exception() is None:
                self.answers[who] = done.result()
                self.ids[who] = done.result().member_id or self.ids.get(who, "")
            else:
                self.ids.pop(who, None)

        task.add_done_callback(note)
        self.tasks.append(task)

    async def _log(self, what: str) -> None:
        log = self.groups.log
        if what in ("wait", "go on"):
            log.hold = what == "wait"
        if what in ("fail", "go on"):
            log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS) if what == "fail" else None
        if log.held and what == "commit the oldest":
            log.commit_next()
        if log.held and what == "fail the oldest":
            log.fail_next(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    async def _commit(self, group: str, number: int, expires: bool) -> None:
        answer = self.answers.get((group, number))
        generation = getattr(answer, "generation_id", getattr(answer, "member_epoch", -1))
        member_id = self.ids.get((group, number), "")
        commit = self.groups.commit(
            {(TOPICS[number % 2], number): number},
            member_id,
            generation if member_id else -1,
            group=group,
            metadata="m" * number,
            retention_ms=1000 if expires else -1,
        )
        self.tasks.append(asyncio.ensure_future(commit))

    async def _commit_in_transaction(self, number: int, producer_id: int) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="alone",
            producer_id=producer_id,
            producer_epoch=0,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=5)],
                )
            ],
        )
        self._ask(
            lambda: self.groups.coordinator.commit_in_transaction(request, {"t": bytes(16)}, lambda: None)
        )

    async def _end_transaction(self, producer_id: int, commit: bool) -> None:
        producer = ProducerIdentity(producer_id, 0)
        marker = EndTransaction(commit, coordinator_epoch=0)
        self._ask(lambda: self.groups.coordinator.end_transaction(0, producer, marker))

    async def _join(self, group: str, number: int) -> None:
        who = group, number
        instance = "static" if number == 3 else None
        self._note(
            who, self.groups.join(self.ids.get(who, ""), group=group, instance=instance, session=30_000)
        )

    async def _sync(self, group: str, number: int) -> None:
        who = group, number
        answer = self.answers.get(who)
        generation = getattr(answer, "generation_id", 1)
        parts = dict.fromkeys(self.ids.values(), b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff")
        instance = "static" if number == 3 else None
        self.tasks.append(
            self.groups.sync(self.ids.get(who, ""), generation, parts, group=group, instance=instance)
        )

    async def _rebalance(self, group: str) -> None:
        """Run a rebalance of two members, which can fail at any point."""
        for number in (0, 1):
            await self._join(group, number)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await self._join(group, number)
        await asyncio.sleep(5)
        for number in (0, 1):
            await self._sync(group, number)

    async def _leave(self, group: str, number: int) -> None:
        self._ask(lambda: self.groups.leave((self.ids.get((group, number), ""), None), group=group))

    async def _beat(self, group: str, number: int, by_regex: bool) -> None:
        who = group, number
        epoch = getattr(self.answers.get(who), "member_epoch", 0)
        self._note(
            who,
            self.groups.beat(
                f"m{number}",
                epoch,
                {} if epoch == 0 else None,
                group=group,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=None if by_regex else list(TOPICS[: 1 + number % 2]),
                subscribed_topic_regex="t.*" if by_regex else "",
                server_assignor="range" if number == 1 else None,
            ),
        )

    async def _quit(self, group: str, number: int) -> None:
        self.answers.pop((group, number), None)
        self.tasks.append(self.groups.beat(f"m{number}", -1, group=group))

    async def _share(self, number: int) -> None:
        who = SHARE, number
        epoch = getattr(self.answers.get(who), "member_epoch", 0)
        topics = TOPICS[: 1 + number % 2] if epoch == 0 or number == 3 else ()
        self._note(who, self.groups.share_beat(f"m{number}", epoch, *topics, group=SHARE))

    async def _stop_sharing(self, number: int) -> None:
        self.answers.pop((SHARE, number), None)
        self.tasks.append(self.groups.share_beat(f"m{number}", -1, group=SHARE))

    async def _persister(self, what: str) -> None:
        persister = self.groups.persister
        persister.failure = KafkaError(ErrorCode.NOT_COORDINATOR) if what == "fail" else None
        if what == "wait":
            persister.open.clear()
        else:
            persister.open.set()

    async def _alter(self, number: int) -> None:
        topic = TOPICS[number % 2]
        topic_id = self.groups.image.topics[topic].id
        key = SharePartitionKey(SHARE, topic_id, 0)
        alter = self.groups.coordinator.share_groups.alter_offsets
        self._ask(lambda: alter(SHARE, {key: number}, {topic_id: topic}))

    async def _delete_states(self, number: int) -> None:
        delete = self.groups.coordinator.share_groups.delete_offsets
        self._ask(lambda: delete(SHARE, [TOPICS[number % 2]]))

    async def _delete_offsets(self, group: str, number: int) -> None:
        self._ask(lambda: self.groups.delete_offsets((TOPICS[number % 2], number), group=group))

    async def _delete(self, group: str) -> None:
        self._ask(lambda: self.groups.delete(group))

    async def _sleep(self, seconds: float) -> None:
        if seconds == 86_400:  # offsets expire, and what waits for members is given up
            await self.groups.coordinator.expire()
        await asyncio.sleep(min(seconds, 60))

    def _ask(self, request: Any) -> None:
        async def ask() -> None:
            answer = request()
            if asyncio.isfuture(answer) or asyncio.iscoroutine(answer):
                await answer

        self.tasks.append(asyncio.ensure_future(ask()))

    async def rest(self) -> None:
        """Wait until all appended records are committed."""
        log = self.groups.log
        log.hold, log.failure = False, None
        persister = self.groups.persister
        persister.failure = None
        persister.open.set()
        while log.held:
            log.commit_next()
            await asyncio.sleep(0.01)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.sleep(6)  # the longest pause before an initialization is repeated


def shard_of(coordinator: Any) -> Any:
    ((_, shard),) = coordinator.active_shards()
    return shard


def witnessed(shard: Any, witness: Any) -> None:
    """Let `witness` replay the records of `shard`. Check that each record is equal to its decoded bytes."""

    def both(name: str) -> None:
        own, others = getattr(shard, name), getattr(witness, name)

        def replay(*arguments: Any) -> None:
            if name != "end_transaction":
                assert shard.decode(*arguments[-1].encode()) == arguments[-1]
            own(*arguments)
            others(*arguments)

        setattr(shard, name, replay)

    for name in ("replay", "replay_pending", "end_transaction"):
        both(name)


def stored_groups(shard: GroupShard) -> dict[str, Any]:
    """Return the stored state of each group, also of groups that have only offsets."""
    return {group_id: stored for group_id, group in shard.groups.items() if (stored := stored_group(group))}


def stored_group(group: Any) -> Any:
    if isinstance(group, ConsumerGroup | ShareGroup):
        if not (group.epoch or group.members):
            return None
        state = dict(vars(group))
        del state["group_id"]
        return state
    if not group.generation and not group.members:
        return None
    members = {
        member.member_id: member.to_record(group.protocol, member.assignment) for member in group.members
    }
    return group.state, group.generation, group.protocol_type, group.protocol, group.leader, members


def stored_offsets(shard: GroupShard) -> tuple[Any, Any]:
    pending = {
        producer_id: written for producer_id, written in shard.commits.pending._producers.items() if written
    }
    return shard.commits.offsets._groups, pending


@settings(max_examples=examples(120, 1000))
@given(st.lists(group_steps, min_size=10, max_size=40))
def test_groups_are_the_same_by_typed_records_and_by_bytes(make_groups, steps):
    async def scenario():
        policy = {"group_consumer_migration_policy": "bidirectional"}
        groups, witness = make_groups(**policy), make_groups(**policy)
        groups.topics(t=4, u=2)
        seen = shard_of(witness.coordinator)
        witnessed(shard_of(groups.coordinator), seen)
        driver = Driver(groups)
        for step in steps:
            await driver.do(step)
        await driver.rest()
        again = make_groups(groups.log, groups.config, groups.image)
        await again.loaded()
        loaded, live = shard_of(again.coordinator), shard_of(groups.coordinator)
        assert stored_offsets(seen) == stored_offsets(loaded) == stored_offsets(live)
        assert stored_groups(seen) == stored_groups(loaded)
        for group_id, group in live.groups.items():
            if isinstance(group, ConsumerGroup | ShareGroup):
                assert stored_group(group) == stored_group(loaded.groups.get(group_id, group))
        for coordinator in (groups.coordinator, witness.coordinator, again.coordinator):
            await coordinator.stop()

    run_virtual(scenario())


def test_an_offset_with_an_expiry_is_replayed_as_it_is_stored():
    """The only format with an expiry has neither a leader epoch nor a topic id."""
    record = offset_record(OffsetKey("g", "t", 0), CommittedOffset(5, 3, "m", 7, 9, b"t" * 16))
    assert record.committed == CommittedOffset(5, metadata="m", committed_ms=7, expires_ms=9)
    kept = CommittedOffset(5, 3, "m", 7, NO_EXPIRY, b"t" * 16)
    assert offset_record(OffsetKey("g", "t", 0), kept).committed == kept
