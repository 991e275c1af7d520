"""Groups of confluent-kafka's consumers, one program a function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, TopicPartition
from tests.compat.programs.confluent_clients import (
    admin,
    consumer,
    fill,
    filled,
    made,
    removed,
    until,
)
from tests.compat.programs.trace import Trace

#: a session of the shortest time that brokers allow
_SHORT = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
#: the two protocols of groups, with the options of a member
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"group_protocol": "classic", **_SHORT},
    "consumer": {"group_protocol": "consumer"},
}
_STRATEGIES: dict[str, dict[str, Any]] = {
    "range": {**PROTOCOLS["classic"], "partition_assignment_strategy": "range"},
    "roundrobin": {**PROTOCOLS["classic"], "partition_assignment_strategy": "roundrobin"},
    "cooperative": {**PROTOCOLS["classic"], "partition_assignment_strategy": "cooperative-sticky"},
    "uniform": {**PROTOCOLS["consumer"], "group_remote_assignor": "uniform"},
    "server's range": {**PROTOCOLS["consumer"], "group_remote_assignor": "range"},
}


class _Member:
    """A member of a group, with what it has been told: changes of its assignment, and errors."""

    def __init__(self, see: Trace, topics: list[str], **options: Any) -> None:
        self.told: list[Any] = []
        self.errors: list[str] = []
        self.offsets: list[Any] = []
        self.client: Consumer = consumer(see, **options)
        self.client.subscribe(
            topics, **{f"on_{kind}": self._teller(kind) for kind in ("assign", "revoke", "lost")}
        )

    def _teller(self, kind: str) -> Any:
        def tell(_: Consumer, places: list[TopicPartition]) -> None:
            if places:
                self.told.append((kind, len(places)))

        return tell

    def poll(self, seconds: float = 0.05) -> None:
        one = self.client.poll(seconds)
        if one is None:
            return
        problem = one.error()
        if problem is None:
            self.offsets.append((one.topic(), one.partition(), one.offset()))
        elif problem.name() not in self.errors:
            self.errors.append(problem.name())

    @property
    def count(self) -> int:
        return len(self.client.assignment())


def _settled(members: Iterable[_Member], *counts: int, seconds: float = 40) -> bool:
    """Poll until the members have this number of partitions."""
    members = list(members)

    def there() -> bool:
        for member in members:
            member.poll()
        return [member.count for member in members] == list(counts)

    return until(there, seconds)


def _failed(member: _Member, *others: _Member, seconds: float = 20) -> bool:
    """Poll until the first member sees an error."""

    def there() -> bool:
        for each in (member, *others):
            each.poll()
        return bool(member.errors)

    return until(there, seconds)


def rebalances_of_every_strategy(see: Trace) -> None:
    topic = filled(see, "t", 2, partitions=6)
    for name, options in _STRATEGIES.items():
        options = {**options, "group_id": see.name(name.replace(" ", "-"))}
        first = _Member(see, [topic], **options)
        see.call(f"{name}: one member", _settled, [first], 6)
        second = _Member(see, [topic], **options)
        see.call(f"{name}: two members", _settled, [first, second], 3, 3)
        third = _Member(see, [topic], **options)
        see.call(f"{name}: three members", _settled, [first, second, third], 2, 2, 2)
        second.client.close()
        see.call(f"{name}: the second has left", _settled, [first, third], 3, 3)
        see.call(f"{name}: unsubscribe", first.client.unsubscribe)
        see.call(f"{name}: the third alone", _settled, [first, third], 0, 6)
        if options["group_protocol"] == "classic":  # a coordinator's assignment arrives in parts
            see.note(f"{name}: told", [each.told for each in (first, second, third)])
        see.note(f"{name}: errors", [each.errors for each in (first, second, third)])
        first.client.close()
        third.client.close()


def callbacks_that_commit_and_seek(see: Trace) -> None:
    topic = filled(see, "t", 4, partitions=2)
    for name, options in PROTOCOLS.items():
        group = see.name(name)

        def from_the_last(client: Consumer, places: list[TopicPartition], name: str = name) -> None:
            for each in places:
                each.offset = 3
            # a coordinator adds partitions to those that a member has
            (client.assign if name == "classic" else client.incremental_assign)(places)

        def commit(client: Consumer, places: list[TopicPartition]) -> None:
            client.commit(
                offsets=[TopicPartition(topic, each.partition, 2) for each in places], asynchronous=False
            )

        reader = consumer(see, group_id=group, **options)
        reader.subscribe([topic], on_assign=from_the_last, on_revoke=commit)
        read: list[Any] = []

        def both(reader: Consumer = reader, read: list[Any] = read) -> bool:
            one = reader.poll(0.1)
            if one is not None and one.error() is None:
                read.append((one.partition(), one.offset()))
            return len(read) == 2

        see.call(f"{name}: read", until, both)
        see.note(f"{name}: offsets", sorted(read))
        see.call(f"{name}: close", reader.close)
        reader = consumer(see, group_id=group)
        see.call(
            f"{name}: committed", reader.committed, [TopicPartition(topic, 0), TopicPartition(topic, 1)], 10
        )
        reader.close()


def subscriptions_that_change(see: Trace) -> None:
    one, two = filled(see, "one", 1, partitions=2), filled(see, "two", 1, partitions=3)
    for name, options in PROTOCOLS.items():
        member = _Member(see, [one], group_id=see.name(name), **options)
        see.call(f"{name}: one", _settled, [member], 2)
        member.client.subscribe([two])
        see.call(f"{name}: two", _settled, [member], 3)
        member.client.subscribe([one, two])
        see.call(f"{name}: both", _settled, [member], 5)
        see.call(f"{name}: unsubscribe", member.client.unsubscribe)
        see.call(f"{name}: none", _settled, [member], 0)
        member.client.subscribe([one])
        see.call(f"{name}: again", _settled, [member], 2)
        see.note(f"{name}: errors", member.errors)
        member.client.close()


def patterns_of_topics(see: Trace) -> None:
    for name, options in PROTOCOLS.items():
        for suffix in ("a-1", "a-2", "b-1"):
            filled(see, f"{name}-{suffix}", 1)
        reader = _Member(
            see,
            [f"^{see.name(name)}-a.*"],
            group_id=see.name(name),
            topic_metadata_refresh_interval_ms=500,
            **options,
        )
        see.call(f"{name}: two topics", _settled, [reader], 2)
        filled(see, f"{name}-a-3", 1)
        see.call(f"{name}: a third one", _settled, [reader], 3)
        # each rebalance of the classic protocol begins again at the first records
        see.call(
            f"{name}: read", until, lambda reader=reader: (reader.poll(), len(set(reader.offsets)) == 3)[-1]
        )
        see.note(f"{name}: offsets", sorted(set(reader.offsets)))
        see.note(f"{name}: errors", reader.errors)
        reader.client.close()


def patterns_of_the_broker(see: Trace) -> None:
    filled(see, "a-1", 1)
    for pattern in (
        "a.*",
        "(?i)A.*",
        "(?P<name>a).*",
        "[[:alpha:]].*",
        r"\\pL-\\d$",
        "(?=a)",
        r"(a)\\1",
        "a**",
        "a{1001}",
        "*",
        "[",
        "|",
    ):
        see.call(pattern, _matched, see, pattern)


def _matched(see: Trace, pattern: str) -> Any:
    """Return the number of partitions that a member gets by a pattern, and its errors."""
    topics = [f"^{see.name(pattern)}"]
    reader = _Member(see, topics, group_id=see.name("g"), group_protocol="consumer")
    until(lambda: (reader.poll(), reader.count or reader.errors)[-1], 4)
    reader.client.close()
    return reader.told, reader.errors


def topics_that_go_under_a_group(see: Trace) -> None:
    for name, options in PROTOCOLS.items():
        stays, goes = filled(see, f"{name}-stays", 1), filled(see, f"{name}-goes", 1, partitions=2)
        member = _Member(
            see, [stays, goes], group_id=see.name(name), topic_metadata_refresh_interval_ms=500, **options
        )
        see.call(f"{name}: both", _settled, [member], 3)
        removed(see, goes)
        see.call(f"{name}: one", _settled, [member], 1)
        made(see, f"{name}-goes", 4)
        see.call(f"{name}: both again", _settled, [member], 5)
        see.note(f"{name}: errors", member.errors)
        member.client.close()


def static_members_that_restart(see: Trace) -> None:
    topic = filled(see, "t", 1, partitions=2)
    for name, options in PROTOCOLS.items():
        options = {**options, "group_id": see.name(name)}
        one = _Member(see, [topic], group_instance_id="one", **options)
        see.call(f"{name}: the first", _settled, [one], 2)
        other = _Member(see, [topic], group_instance_id="two", **options)
        see.call(f"{name}: both", _settled, [one, other], 1, 1)
        (place,) = one.client.assignment()
        one.client.close()
        again = _Member(see, [topic], group_instance_id="one", **options)
        see.call(f"{name}: settle again", _settled, [again, other], 1, 1)
        see.note(f"{name}: the same partition", again.client.assignment()[0].partition == place.partition)
        see.note(f"{name}: told the other", other.told)
        for each in (again, other):
            each.client.close()
        admin_of_group = admin(see)
        see.note(
            f"{name}: members after they have stopped",
            len(admin_of_group.describe_consumer_groups([see.name(name)])[see.name(name)].result(20).members),
        )


def static_members_that_join_twice(see: Trace) -> None:
    topic = filled(see, "t", 1, partitions=2)
    place = [TopicPartition(topic, 0, 1)]
    for name, options in PROTOCOLS.items():
        options = {**options, "group_id": see.name(name), "group_instance_id": "one"}
        first = _Member(see, [topic], **options)
        see.call(f"{name}: the first", _settled, [first], 2)
        second = _Member(see, [topic], **options)
        fenced = first if name == "classic" else second
        see.call(f"{name}: one is fenced", _failed, fenced, first, second)
        see.note(f"{name}: errors", [first.errors, second.errors])
        for label, member in (("first", first), ("second", second)):
            see.call(f"{name}: the {label} commits", member.client.commit, offsets=place, asynchronous=False)
        see.call(f"{name}: the second polls", _settled, [second], 2 if name == "classic" else 0)
        see.call(f"{name}: the first stops", first.client.close)
        see.call(f"{name}: the second stops", second.client.close)


def members_that_poll_too_late(see: Trace) -> None:
    topic = filled(see, "t", 1, partitions=2)
    for name, options in PROTOCOLS.items():
        options = {**options, "group_id": see.name(name), "max_poll_interval_ms": 6000}
        first = _Member(see, [topic], **options)
        see.call(f"{name}: the first", _settled, [first], 2)
        second = _Member(see, [topic], **{**options, "max_poll_interval_ms": 60_000})
        # The first does not poll, so it does not give back its partitions.
        see.call(f"{name}: the second has all", _settled, [second], 2)
        place = [TopicPartition(topic, 0, 1)]
        see.call(f"{name}: commit late", first.client.commit, offsets=place, asynchronous=False)
        see.call(f"{name}: both", _settled, [first, second], 1, 1)
        see.note(f"{name}: told", [first.told, second.told])
        see.note(f"{name}: errors", [first.errors, second.errors])
        first.client.close()
        second.client.close()


def commits_from_outside_of_a_group(see: Trace) -> None:
    topic = filled(see, "t", 2)
    clients = admin(see)
    for name, options in PROTOCOLS.items():
        group = see.name(name)
        request = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])]
        outside = consumer(see, group_id=group)
        place = [TopicPartition(topic, 0, 1)]
        see.call(f"{name}: before the group", outside.commit, offsets=place, asynchronous=False)
        member = _Member(see, [topic], group_id=group, **options)
        see.call(f"{name}: a member", _settled, [member], 1)
        see.call(f"{name}: outside", outside.commit, offsets=place, asynchronous=False)
        see.call(
            f"{name}: by an administrator",
            lambda request=request: clients.alter_consumer_group_offsets(request),
        )
        see.call(f"{name}: inside", member.client.commit, offsets=place, asynchronous=False)
        see.call(f"{name}: delete the group", lambda group=group: clients.delete_consumer_groups([group]))
        member.client.close()
        see.call(f"{name}: after the group", outside.commit, offsets=place, asynchronous=False)
        outside.close()


def groups_that_go_under_a_consumer(see: Trace) -> None:
    topic = filled(see, "t", 3)
    clients = admin(see)
    for name, options in PROTOCOLS.items():
        group = see.name(name)
        member = _Member(see, [topic], group_id=group, **options)
        see.call(f"{name}: read", until, lambda member=member: (member.poll(), len(member.offsets) == 3)[-1])
        member.client.commit(asynchronous=False)
        see.call(f"{name}: delete with a member", lambda group=group: clients.delete_consumer_groups([group]))
        member.client.unsubscribe()

        def has_left(member: _Member = member, group: str = group) -> bool:
            member.poll()
            return not clients.describe_consumer_groups([group])[group].result(20).members

        see.call(f"{name}: leave", until, has_left)
        see.call(f"{name}: delete", lambda group=group: clients.delete_consumer_groups([group]))
        see.call(f"{name}: delete twice", lambda group=group: clients.delete_consumer_groups([group]))
        see.call(f"{name}: committed", member.client.committed, [TopicPartition(topic, 0)], 10)
        member.client.subscribe([topic])
        see.call(
            f"{name}: read again", until, lambda member=member: (member.poll(), len(member.offsets) == 6)[-1]
        )
        see.note(f"{name}: offsets", member.offsets)
        see.note(f"{name}: errors", member.errors)
        member.client.close()


def members_with_other_protocols(see: Trace) -> None:
    topic = filled(see, "t", 1, partitions=2)
    for mine, others in (("range", "roundrobin"), ("range", "cooperative"), ("cooperative", "roundrobin")):
        group = see.name(f"{mine}-{others}")
        first = _Member(see, [topic], group_id=group, **_STRATEGIES[mine])
        see.call(f"{mine} before {others}", _settled, [first], 2)
        second = _Member(see, [topic], group_id=group, **_STRATEGIES[others])
        see.call(f"{others} after {mine}", _failed, second, first)
        see.note(f"{mine} and {others}: errors", [first.errors, second.errors])
        first.client.close()
        second.client.close()
    clients = admin(see)
    for mine, others in (("classic", "consumer"), ("consumer", "classic")):
        group = see.name(f"{mine}-{others}")

        def kind(group: str = group) -> Any:
            described = clients.describe_consumer_groups([group])[group].result(20)
            return described.state, described.type, len(described.members)

        first = _Member(see, [topic], group_id=group, **PROTOCOLS[mine])
        see.call(f"{mine} before {others}", _settled, [first], 2)
        see.call(f"{mine} before {others}: kind", kind)
        second = _Member(see, [topic], group_id=group, **PROTOCOLS[others])
        see.call(f"{others} after {mine}", _settled, [first, second], 1, 1)
        see.call(f"{others} after {mine}: kind", kind)
        first.client.close()
        see.call(f"{others} alone", _settled, [second], 2)
        see.call(f"{others} alone: kind", kind)
        see.note(f"{mine} and {others}: errors", [first.errors, second.errors])
        second.client.close()


def positions_that_a_group_keeps(see: Trace) -> None:
    topic = filled(see, "t", 4)
    for name, options in PROTOCOLS.items():
        options = {**options, "group_id": see.name(name)}
        member = _Member(see, [topic], **options)
        until(lambda member=member: (member.poll(), len(member.offsets) == 4)[-1])
        member.client.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        member.client.close()
        member = _Member(see, [topic], **options)
        see.call(
            f"{name}: read on", until, lambda member=member: (member.poll(), len(member.offsets) == 2)[-1]
        )
        see.note(f"{name}: offsets", member.offsets)
        member.client.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
        see.call(
            f"{name}: read all", until, lambda member=member: (member.poll(), len(member.offsets) == 6)[-1]
        )
        see.call(f"{name}: pause", member.client.pause, member.client.assignment())
        fill(see, topic, 1)
        until(lambda member=member: member.poll(0.1), 1)
        see.note(f"{name}: nothing while paused", len(member.offsets))
        see.call(f"{name}: resume", member.client.resume, member.client.assignment())
        see.call(
            f"{name}: read after", until, lambda member=member: (member.poll(), len(member.offsets) == 7)[-1]
        )
        see.note(f"{name}: the metadata names the group", bool(member.client.consumer_group_metadata()))
        member.client.close()
        removed(see, topic)
        topic = filled(see, "t", 4)
