"""Random walks of a group of the consumer protocol (KIP-848): heartbeats, subscriptions and commits."""

from __future__ import annotations

from typing import Any

from tests.compat.scenarios.consumer_groups import beat, describe, known_topic
from tests.compat.walks.pair import Pair
from tests.compat.wire import Wire

from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
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
    OffsetFetchRequestTopics,
)
from barnabas.kafka.protocol.schema import Request

TOPICS = {"t": 4}
#: the members, and the instance ids that they have
MEMBERS = {"a": None, "b": None, "c": "i", "d": "i", "e": "j"}


class GroupWalk:
    """Members of one group over one topic, which come, go, and report what they own."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.random = pair, pair.random
        for topic, partitions in TOPICS.items():
            pair.each(lambda wire, topic=topic, partitions=partitions: known_topic(wire, topic, partitions))
        #: the last epoch of each member, 0 or below if it has left
        self.epochs = dict.fromkeys(MEMBERS, 0)
        #: the last assignment of each member: partitions by topic suffix
        self.owned: dict[str, dict[str, list[int]]] = {member: {} for member in MEMBERS}

    def run(self, steps: int) -> None:
        work = [self.beat, self.join, self.leave, self.describe, self.commit, self.fetch, self.delete]
        for _ in range(steps):
            self.random.choices(work, [12, 4, 1.5, 3, 3, 2, 0.4])[0]()

    def _heartbeat(self, member: str, epoch: int, told: str, owned: dict[str, list[int]] | None, **more: Any):
        topics = more.pop("topics", None)

        def make(wire: Wire, _: int) -> Request:
            fields = dict(more)
            if topics is not None:
                fields["subscribed_topic_names"] = [wire.name(topic) for topic in topics]
            named = None if owned is None else {wire.name(topic): parts for topic, parts in owned.items()}
            return beat(wire, member, epoch, named, **fields)

        answer, _ = self.pair.ask(make, f"{told} {member} epoch {epoch} owns {owned} {topics} {more}")
        if answer.error_code:
            return
        self.epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            wire = self.pair.wires[0]
            names = {wire.topic_id(wire.name(topic)): topic for topic in TOPICS}
            self.owned[member] = {
                names[each.topic_id]: sorted(each.partitions) for each in answer.assignment.topic_partitions
            }

    def join(self) -> None:
        member = self.random.choice(list(MEMBERS))
        topics = self.random.choice((["t"], ["t"], ["t", "nowhere"]))
        instance = MEMBERS[member]
        if self.random.random() < 0.05:
            instance = None
        if self.epochs[member] <= 0:
            self.owned[member] = {}
        owned = {} if self.random.random() < 0.9 else self.owned[member]
        # The order in which other assignors give out partitions is not a part of the protocol.
        more = {"rebalance_timeout_ms": 60_000, "instance_id": instance, "server_assignor": "range"}
        self._heartbeat(member, 0, "join", owned, topics=topics, **more)

    def beat(self) -> None:
        rng = self.random
        present = [member for member in MEMBERS if self.epochs[member] > 0]
        member = rng.choice(present) if present and rng.random() < 0.95 else rng.choice(list(MEMBERS))
        known = self.epochs[member]
        epoch = rng.choices((known, known - 1, known + 1, 99), (20, 1, 0.5, 0.2))[0]
        owned: dict[str, list[int]] | None = self.owned[member]
        dice = rng.random()
        if dice < 0.3:
            owned = None
        elif dice < 0.4:
            owned = {topic: parts[: rng.randint(0, 4)] for topic, parts in self.owned[member].items()}
        elif dice < 0.44:
            owned = {"t": [0, 1, 2]}
        more: dict[str, Any] = {}
        if rng.random() < 0.15:
            more["topics"] = rng.choice((["t"], [], ["t", "nowhere"]))
        if MEMBERS[member] is not None:
            more["instance_id"] = MEMBERS[member]
        self._heartbeat(member, epoch, "beat", owned, **more)

    def leave(self) -> None:
        member = self.random.choice(list(MEMBERS))
        more = {} if MEMBERS[member] is None else {"instance_id": MEMBERS[member]}
        self._heartbeat(member, self.random.choice((-1, -1, -2)), "leave", None, **more)

    def describe(self) -> None:
        self.pair.ask(lambda wire, _: describe(wire), "describe")
        if self.random.random() < 0.2:
            self.pair.ask(
                lambda wire, _: DescribeGroupsRequest(groups=[wire.name("g")]), "describe (classic)"
            )

    def commit(self) -> None:
        rng = self.random
        member = rng.choice([*MEMBERS, ""])
        known = self.epochs.get(member, -1)
        epoch = rng.choices((known, known - 1, known + 1, -1), (10, 1, 1, 1))[0]
        topic, offset = rng.choice(list(TOPICS)), rng.randint(0, 9)
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            for index in rng.sample(range(TOPICS[topic] + 1), 2)
        ]
        instance = MEMBERS.get(member)

        def make(wire: Wire, _: int) -> Request:
            name = wire.name(topic)
            topic_id = wire.topic_id(name)
            topics = [OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)]
            return OffsetCommitRequest(
                group_id=wire.name("g"),
                generation_id_or_member_epoch=epoch,
                member_id=member,
                group_instance_id=instance,
                topics=topics,
            )

        version = rng.choice((8, 9, 10))
        told = f"commit v{version} of {member!r} {instance} epoch {epoch}: {offset} of {topic}"
        self.pair.ask(make, told, version=version)

    def fetch(self) -> None:
        rng = self.random
        member = rng.choice([*MEMBERS, None])
        epoch = -1 if member is None else self.epochs[member] + rng.choice((0, 0, 0, -1, 1))

        def make(wire: Wire, _: int) -> Request:
            wanted = [
                OffsetFetchRequestTopics(
                    name=wire.name(topic), topic_id=wire.topic_id(wire.name(topic)), partition_indexes=[0, 1]
                )
                for topic in TOPICS
            ]
            group = OffsetFetchRequestGroup(
                group_id=wire.name("g"), member_id=member, member_epoch=epoch, topics=wanted
            )
            return OffsetFetchRequest(groups=[group], require_stable=True)

        self.pair.ask(make, f"fetch offsets of {member} epoch {epoch}", version=rng.choice((9, 10)))

    def delete(self) -> None:
        if self.random.random() < 0.5:
            self.pair.ask(lambda wire, _: DeleteGroupsRequest(groups_names=[wire.name("g")]), "delete group")
            return
        wanted = [OffsetDeleteRequestPartition(partition_index=0)]
        self.pair.ask(
            lambda wire, _: OffsetDeleteRequest(
                group_id=wire.name("g"),
                topics=[OffsetDeleteRequestTopic(name=wire.name("t"), partitions=wanted)],
            ),
            "delete offsets",
        )
