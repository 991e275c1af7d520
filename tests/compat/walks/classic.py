"""Random walks of a group of the classic protocol: rebalances, commits, and conversions (KIP-848).

JoinGroup and SyncGroup answer late: they wait for other members. So each client has its own connections.
After each request, the walk waits until the same requests wait at both brokers. Then it compares the answers
that have arrived, and the description of the group.

All timeouts are longer than a walk. But in some walks, the rebalance timeout is short, and the walk sends no
request at its end.

The walk leaves out what each broker does in its own way:

- If a leader leaves, Kafka chooses another one in no order. If the brokers have chosen different leaders, all
  members leave.
- If the votes for the protocol are equal, Kafka chooses a protocol in no order.
- Kafka never answers a request that the same member repeats, or a SyncGroup whose member leaves.
- If a member leaves that has only got a member id, Kafka rebalances a stable group.
- If a static member is replaced before it has synced, Kafka waits for the sync of the earlier one, and then
  rebalances.
- Kafka has an internal error if a static member joins with the id of a member that has not joined yet.
- Kafka keeps the client id and the host of a static member that another one replaces.
- If Kafka rejects the first JoinGroup or the first commit of a group, it can create the group.
- If a member of a former group joins an empty consumer group, Kafka forgets the group until it starts again.
- Kafka cannot convert a group before its first generation is complete, or if a member does not support the
  protocol of the last generation.
- If a member of the classic protocol replaces the last member of the consumer protocol, Kafka can answer a
  generation that it rejects later. If the subscription changes, the next generation has another number.
- If a member without topics joins a consumer group, Kafka takes the partitions from all others.
- In a consumer group, the member ids of dynamic members decide who gets which partitions. Each broker makes
  up its own. So only static clients and former members of the classic group join it.
- If the request has an epoch but no member id, OffsetFetch of a consumer group fails in Kafka.
"""

from __future__ import annotations

import time
from typing import Any

from tests.compat.scenarios import transactions as txn
from tests.compat.scenarios.consumer_groups import beat as consumer_beat
from tests.compat.scenarios.groups import UNKNOWN_ID, commit, committed
from tests.compat.walks.classic_members import LONG_MS, NO_IDS, STRANGER, TOPICS, ClassicMembers, Ids, Owned
from tests.compat.walks.pair import Different, Pair
from tests.compat.wire import Wire

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest
from barnabas.kafka.protocol.schema import Request

#: the shortest session timeout that a broker accepts by default
SESSION_MS = 6000
#: members of the consumer protocol, and their instance ids
MODERN = {"x": None, "y": "i"}
_IS_GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.FENCED_INSTANCE_ID)


class ClassicWalk(ClassicMembers):
    """Clients of one group of the classic protocol, which come, go and commit."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair)
        pair.each(lambda wire: txn.coordinated(wire, wire.name("x")))
        answers = pair.each(lambda wire: wire.ask(txn.init(wire.name("x"))))
        self.producers = tuple((answer.producer_id, answer.producer_epoch) for answer in answers)
        #: of the members of the consumer protocol: their epochs, assignments and topics
        self.epochs = dict.fromkeys(MODERN, 0)
        self.owned: dict[str, Owned] = {name: {} for name in MODERN}
        self.topics: dict[str, tuple[str, ...]] = {}
        self.settle()

    def run(self, steps: int) -> None:
        work = {
            self.join: 9, self.sync: 8, self.round: 3, self.beat: 5, self.leave: 1.5, self.commit: 4,
            self.fetch: 2, self.commit_in_transaction: 1.5, self.list: 1, self.delete: 0.5,
            self.delete_offsets: 1, self.modern: 2 if self.converts else 0, self.disconnect: 0.3,
            self.odd: 0.5, self.expire: 3 if self.is_short else 0,
        }  # fmt: skip
        try:
            for _ in range(steps):
                try:
                    self.random.choices(list(work), list(work.values()))[0]()
                    self.settle()
                except Different:
                    if not self.has_stood_still:
                        raise
                if self.has_stood_still:
                    return  # the machine was busy, and the brokers may be in different states
            if self.random.random() < 0.15:
                self.end_sessions()
        finally:
            self.late.close()

    def topics_of(self, instance: str | None) -> tuple[str, ...] | None:
        if instance is None:
            return None
        return next((topics for name, topics in self.topics.items() if MODERN[name] == instance), None)

    def _sender(self) -> tuple[Ids, str | None, int]:
        """Return the ids, the instance id and the generation of a member: mostly right ones."""
        rng = self.random
        members = [client for client in self.clients if client.ids in self.present]
        client = rng.choice(members) if members and rng.random() < 0.85 else self.any_client()
        ids, instance, generation = client.ids, client.instance, client.generation
        dice = rng.random()
        if dice < 0.06:
            generation += rng.choice((-1, 1))
        elif dice < 0.09:
            ids = STRANGER
        elif dice < 0.12:
            ids = NO_IDS
        elif dice < 0.16:
            instance = rng.choice(("i", "j", "k", None))
        return ids, instance, generation

    def beat(self) -> None:
        self._beat(*self._sender())

    def _beat(self, ids: Ids, instance: str | None, generation: int) -> None:
        version = self.random.choice((3, 4) if instance else range(5))
        told = f"heartbeat v{version} of {self.told(ids)} {instance} generation {generation}"
        self.pair.ask(
            lambda wire, number: HeartbeatRequest(
                group_id=wire.name("g"),
                generation_id=generation,
                member_id=ids[number],
                group_instance_id=instance,
            ),
            told,
            version=version,
        )

    def leave(self) -> None:
        rng = self.random
        version = rng.choice((0, 1, 2, 3, 3, 4, 4, 5, 5))
        leavers = [self._sender()[:2] for _ in range(1 if version < 3 else rng.choice((1, 1, 1, 2, 3, 0)))]
        leavers = [
            (ids if not instance or rng.random() < 0.7 else NO_IDS, instance) for ids, instance in leavers
        ]
        if version < 3:
            leavers = [(ids, None) for ids, _ in leavers]
        if self.state != "PreparingRebalance" and any(ids in self.pending for ids, _ in leavers):
            return  # in Kafka, that rebalances

        def make(wire: Wire, number: int) -> Request:
            identities = [
                MemberIdentity(member_id=ids[number], group_instance_id=instance) for ids, instance in leavers
            ]
            if version < 3:
                return LeaveGroupRequest(group_id=wire.name("g"), member_id=identities[0].member_id)
            return LeaveGroupRequest(group_id=wire.name("g"), members=identities)

        told = f"leave v{version} of {[(self.told(ids), instance) for ids, instance in leavers]}"
        mine, _ = self.pair.ask(make, told, version=version)
        if mine.error_code:
            return
        codes = [member.error_code for member in mine.members] if version >= 3 else [0]
        for (ids, instance), code in zip(leavers, codes, strict=True):
            if not code:
                self._left(ids if ids != NO_IDS else self._holder(instance))

    def _holder(self, instance: str | None) -> tuple[str, ...]:
        return next((ids for ids, held in self.present.items() if held == instance), NO_IDS)

    def _left(self, ids: Ids) -> None:
        self.pending.discard(ids)
        if self.leaders in (ids, NO_IDS) or self.leaders not in self.present:
            self.lost_leader = True
        for client in self.clients:
            if client.ids == ids:
                late = self.late.of(client.name)
                if late is not None and late.request is SyncGroupRequest:
                    self.late.drop(client.name)  # Kafka does not answer it
                self.leave_behind(client)

    def disconnect(self) -> None:
        if self.late.waiting:
            self.late.drop(self.random.choice(self.late.waiting).client)

    def modern(self) -> None:
        """Send a heartbeat of a member of the consumer protocol."""
        rng = self.random
        name = rng.choice(list(MODERN))
        known, instance = self.epochs[name], MODERN[name]
        if known <= 0:
            if self.state not in ("Empty", "Dead") and not self.generation:
                return
            epoch = 0
        else:
            epoch = rng.choices((known, -1, -2 if instance else -1, 0, known - 1), (8, 1.5, 1, 0.5, 0.3))[0]
        more: dict[str, Any] = {"instance_id": instance} if instance else {}
        owned: Owned | None = self.owned[name]
        if epoch <= 0:
            owned = {} if epoch == 0 else None
        topics = rng.choice((("t",), ("t", "u"))) if epoch == 0 or rng.random() < 0.1 else None
        if epoch == 0:
            more |= {"rebalance_timeout_ms": LONG_MS[0], "server_assignor": "range"}

        def make(wire: Wire, _: int) -> Request:
            held = None if owned is None else {wire.name(topic): parts for topic, parts in owned.items()}
            names = None if topics is None else [wire.name(topic) for topic in topics]
            return consumer_beat(wire, name, epoch, held, subscribed_topic_names=names, **more)

        answer, _ = self.pair.ask(
            make, f"consumer heartbeat of {name} {instance} epoch {epoch} {owned} {topics}"
        )
        if answer.error_code:
            if epoch != -1 and answer.error_code != ErrorCode.UNRELEASED_INSTANCE_ID:
                self.epochs[name] = 0
            if answer.error_code in _IS_GONE:
                self.topics.pop(name, None)
            return
        if epoch == -1:
            self.topics.pop(name, None)
        elif epoch >= 0 and topics is not None:
            self.topics[name] = topics
        self.lost_leader = True  # a conversion chooses another one
        self.epochs[name] = max(0, answer.member_epoch)
        if answer.assignment is not None:
            wire = self.pair.wires[0]
            names = {wire.topic_id(wire.name(topic)): topic for topic in TOPICS}
            self.owned[name] = {
                names[each.topic_id]: sorted(each.partitions) for each in answer.assignment.topic_partitions
            }

    def end_sessions(self) -> None:
        """Let all members join again with short sessions, and then let some of them be silent."""
        self.leave_all()
        self.settle()
        self.sessions = (SESSION_MS,)
        for _ in range(2):
            self.round()
        silent = self.random.sample(list(self.present), len(self.present) // 2)
        began, pause = time.monotonic(), SESSION_MS / 2400  # seconds
        for number in range(1, 4):
            time.sleep(max(0.0, began + number * pause - time.monotonic()))
            if self._end is not None or time.monotonic() > began + (number + 0.8) * pause:
                return  # a rebalance timeout runs, too, or the machine was busy
            self.settle()
            for client in self.clients:
                if client.ids in self.present and client.ids not in silent:
                    self._beat(client.ids, client.instance, client.generation)

    # --- offsets ---

    def commit(self) -> None:
        rng = self.random
        ids, instance, generation = self._sender() if rng.random() < 0.75 else (NO_IDS, None, -1)
        if rng.random() < 0.05:
            generation = -1
        version = rng.choice((7, 8, 9, 10) if instance else range(2, 11))
        topic, offset = rng.choice((*TOPICS, "t", "nowhere")), rng.randint(0, 99)
        # In Kafka, a rejected first commit creates the group.
        metadata = ("", "m", None, "x" * 5000) if self.present else ("", "m", None)
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_metadata=rng.choice(metadata) if rng.random() < 0.2 else "",
            )
            for index in rng.sample(range(5), 2)
        ]

        def make(wire: Wire, number: int) -> Request:
            name = wire.name(topic)
            topic_id = wire.topic_id(name) if topic in TOPICS else UNKNOWN_ID
            return OffsetCommitRequest(
                group_id=wire.name("g"),
                generation_id_or_member_epoch=generation,
                member_id=ids[number],
                group_instance_id=instance,
                topics=[OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)],
            )

        indexes = [partition.partition_index for partition in partitions]
        told = f"commit v{version} of {self.told(ids)} {instance} generation {generation}"
        self.pair.ask(make, f"{told}: {offset} of {topic} {indexes}", version=version)

    def commit_in_transaction(self) -> None:
        rng = self.random
        if rng.random() < 0.4:
            ends, commits = self.producers, rng.random() < 0.7
            answers = self.pair.ask(
                lambda wire, number: txn.end(wire.name("x"), ends[number], commits),
                f"end, commits {commits}",
                version=5,
            )
            self.pair.each(lambda wire: txn.settled(wire, wire.name("x")))
            if not answers[0].error_code:
                self.producers = tuple((each.producer_id, each.producer_epoch) for each in answers)
            return
        ids, instance, generation = self._sender() if rng.random() < 0.75 else (NO_IDS, None, -1)
        if rng.random() < 0.2:
            name = rng.choice(list(MODERN))
            ids, instance, generation = (name, name), MODERN[name], self.epochs[name] + rng.choice((0, 0, -1))
        topic, offset = rng.choice(list(TOPICS)), rng.randint(100, 199)

        def make(wire: Wire, number: int) -> Request:
            member = {"member_id": ids[number], "generation_id": generation, "group_instance_id": instance}
            return txn.offsets(
                wire, wire.name("x"), self.producers[number], wire.name(topic), offset, **member
            )

        told = f"transactional commit of {self.told(ids)} {instance} generation {generation}"
        self.pair.ask(make, f"{told}: {offset} of {topic}", version=5)

    def fetch(self) -> None:
        rng = self.random
        ids, _, generation = self._sender()
        topics = rng.choice((["t"], ["t", "u"], ["nowhere"], None))
        version = rng.choice(range(2, 11))
        if not rng.randrange(2):
            ids, generation = NO_IDS, -1
        absent = None if generation < 0 else ""

        def make(wire: Wire, number: int) -> Request:
            old = new = None
            if topics is not None:
                names = [wire.name(topic) for topic in topics]
                old = [OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1, 9]) for name in names]
                new = [
                    OffsetFetchRequestTopics(
                        name=name,
                        topic_id=UNKNOWN_ID if topics == ["nowhere"] else wire.topic_id(name),
                        partition_indexes=[0, 1, 9],
                    )
                    for name in names
                ]
            group = OffsetFetchRequestGroup(
                group_id=wire.name("g"), member_id=ids[number] or absent, member_epoch=generation, topics=new
            )
            return OffsetFetchRequest(
                group_id=wire.name("g"), topics=old, groups=[group], require_stable=stable
            )

        stable = rng.random() < 0.5
        told = f"fetch offsets v{version} of {self.told(ids)} {generation} {topics} stable {stable}"
        self.pair.ask(make, told, version=version)

    def delete_offsets(self) -> None:
        topics = self.random.choice((["t"], ["u"], ["t", "u"], ["nowhere"]))

        def make(wire: Wire, _: int) -> Request:
            wanted = [
                OffsetDeleteRequestTopic(
                    name=wire.name(topic),
                    partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)],
                )
                for topic in topics
            ]
            return OffsetDeleteRequest(group_id=wire.name("g"), topics=wanted)

        self.pair.ask(make, f"delete offsets of {topics}")

    # --- groups as a whole ---

    def delete(self) -> None:
        groups = self.random.choice((["g"], ["g", "none"], ["g", "g"]))
        self.pair.ask(
            lambda wire, _: DeleteGroupsRequest(groups_names=[wire.name(group) for group in groups]),
            f"delete {groups}",
            version=self.random.randrange(3),
        )

    def list(self) -> None:
        rng = self.random
        version = rng.choice(range(6))
        states = rng.sample(
            ("Stable", "empty", "PREPARINGREBALANCE", "CompletingRebalance", "Dead", "?"), rng.randrange(4)
        )
        types = rng.sample(("classic", "Consumer", "share", "?"), rng.randrange(3))
        filters = {}
        if version >= 4:
            filters["states_filter"] = states
        if version >= 5:
            filters["types_filter"] = types

        def ours(answer: Any) -> Any:
            start = self.pair.wires[0].name("")
            answer["groups"] = [each for each in answer["groups"] if each["group_id"].startswith(start + "g")]
            return answer

        self.pair.ask(lambda *_: ListGroupsRequest(**filters), f"list v{version} {filters}", ours, version)

    def odd(self) -> None:
        """Send a request to a group with an odd id, which may be empty."""
        rng = self.random
        suffix = rng.choice(("", " ", "gr\u00fcn \u2603", "x" * 300, "g:/,*\x01"))

        def group(wire: Wire) -> str:
            return wire.name(suffix) if suffix else ""

        requests = (
            lambda wire: JoinGroupRequest(
                group_id=group(wire), session_timeout_ms=LONG_MS[0], member_id="nobody"
            ),
            lambda wire: SyncGroupRequest(
                group_id=group(wire), member_id="nobody", protocol_type="", protocol_name=""
            ),
            lambda wire: HeartbeatRequest(group_id=group(wire), member_id="nobody"),
            lambda wire: LeaveGroupRequest(
                group_id=group(wire), members=[MemberIdentity(member_id="nobody")]
            ),
            lambda wire: DescribeGroupsRequest(groups=[group(wire)]),
            lambda wire: DeleteGroupsRequest(groups_names=[group(wire)]),
            lambda wire: ConsumerGroupDescribeRequest(group_ids=[group(wire)]),
            lambda wire: commit(wire, group(wire), wire.name("t"), 3),
            lambda wire: committed(wire, group(wire), wire.name("t")),
            lambda wire: OffsetDeleteRequest(group_id=group(wire)),
        )
        number = rng.randrange(len(requests))
        self.pair.ask(lambda wire, _: requests[number](wire), f"request {number} to group {suffix!r}")
