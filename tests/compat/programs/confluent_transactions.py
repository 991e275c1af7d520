"""Transactional producers of confluent-kafka, one program a function."""

from __future__ import annotations

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.compat.programs.confluent_clients import (
    admin,
    consumer,
    everything_read,
    filled,
    made,
    polled,
    producer,
    removed,
    sent,
    until,
)
from tests.compat.programs.trace import Trace


def _transactional(see: Trace, suffix: str = "x", **options: object) -> Producer:
    writer = producer(see, transactional_id=see.name(suffix), **options)
    writer.init_transactions(30)
    return writer


def _read_by_both(see: Trace, topic: str, partitions: int = 1) -> None:
    for isolation in ("read_committed", "read_uncommitted"):
        everything_read(see, topic, partitions, isolation, isolation_level=isolation)


def _last_stable(clients: AdminClient, topic: str) -> int:
    place = TopicPartition(topic, 0)
    found = clients.list_offsets({place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
    return int(found[place].result(30).offset)


def commits_and_aborts(see: Trace) -> None:
    topic, other = made(see, "t", 2), made(see, "u")
    writer = _transactional(see)
    for number, end in enumerate(("commit", "abort", "commit", "abort", "abort", "commit")):
        see.call("begin", writer.begin_transaction)
        sent(see, f"send {number}", writer, topic, b"%d" % number, b"%d" % number, partition=number % 2)
        sent(see, f"send {number} to another topic", writer, other, b"%d" % number)
        see.call(end, getattr(writer, f"{end}_transaction"), 30)
    for end in ("commit", "abort"):
        see.call("begin", writer.begin_transaction)
        see.call(f"{end} an empty one", getattr(writer, f"{end}_transaction"), 30)
    _read_by_both(see, topic, 2)
    _read_by_both(see, other)


def calls_out_of_order(see: Trace) -> None:
    topic = made(see, "t")
    writer = producer(see, transactional_id=see.name("x"))
    see.call("begin before init", writer.begin_transaction)
    see.call("commit before init", writer.commit_transaction, 10)
    see.call("produce before init", writer.produce, topic, b"v")
    see.call("init", writer.init_transactions, 30)
    see.call("init twice", writer.init_transactions, 30)
    see.call("commit without begin", writer.commit_transaction, 10)
    see.call("abort without begin", writer.abort_transaction, 10)
    see.call("produce outside", writer.produce, topic, b"v")
    see.call("begin", writer.begin_transaction)
    see.call("begin twice", writer.begin_transaction)
    see.call("init inside", writer.init_transactions, 10)
    sent(see, "send", writer, topic, b"v")
    see.call("commit", writer.commit_transaction, 30)
    see.call("commit twice", writer.commit_transaction, 10)
    plain = producer(see)
    see.call("init without an id", plain.init_transactions, 10)
    see.call("begin without an id", plain.begin_transaction)
    _read_by_both(see, topic)


def two_producers_with_one_id(see: Trace) -> None:
    topic = made(see, "t")
    for call in ("send", "commit", "abort", "begin"):
        first = _transactional(see, call)
        first.begin_transaction()
        sent(see, f"{call}: the first sends", first, topic, b"first")
        second = _transactional(see, call)
        if call == "send":
            sent(see, "a fenced send", first, topic, b"fenced")
        if call != "abort":
            see.call(f"{call}: a fenced commit", first.commit_transaction, 30)
        see.call(f"{call}: a fenced abort", first.abort_transaction, 30)
        see.call(f"{call}: a fenced begin", first.begin_transaction)
        see.call(f"{call}: a fenced produce", first.produce, topic, b"v")
        see.call(f"{call}: the second begins", second.begin_transaction)
        sent(see, f"{call}: the second sends", second, topic, b"second")
        see.call(f"{call}: the second commits", second.commit_transaction, 30)
    _read_by_both(see, topic)


def a_fenced_producer_of_offsets(see: Trace) -> None:
    topic = filled(see, "t", 3)
    reader = consumer(see, topic, group_id=see.name("g"))
    polled(reader, 20)
    first = _transactional(see)
    second = _transactional(see)
    first.begin_transaction()
    see.call(
        "fenced offsets",
        first.send_offsets_to_transaction,
        [TopicPartition(topic, 0, 1)],
        reader.consumer_group_metadata(),
        30,
    )
    see.call("fenced commit", first.commit_transaction, 30)
    see.call("committed", reader.committed, [TopicPartition(topic, 0)], 10)
    see.call("the second begins", second.begin_transaction)
    see.call("the second aborts", second.abort_transaction, 30)
    reader.close()


def rejected_records_in_a_transaction(see: Trace) -> None:
    topic, small = made(see, "t"), made(see, "s", max_message_bytes="2000")
    compact = made(see, "c", cleanup_policy="compact")
    writer = _transactional(see, message_timeout_ms=5000)
    for label, place in (("too large", small), ("no key", compact), ("no such name", "a b")):
        see.call(f"{label}: begin", writer.begin_transaction)
        sent(see, f"{label}: first", writer, topic, label.encode())
        sent(see, label, writer, place, b"v" * 5000)
        sent(see, f"{label}: next", writer, topic, b"next")
        see.call(f"{label}: commit", writer.commit_transaction, 30)
        see.call(f"{label}: abort", writer.abort_transaction, 30)
    see.call("begin", writer.begin_transaction)
    sent(see, "send", writer, topic, b"fine", b"fine too")
    see.call("commit", writer.commit_transaction, 30)
    _read_by_both(see, topic)


def a_transaction_that_times_out(see: Trace) -> None:
    topic = made(see, "t")
    writer = _transactional(see, transaction_timeout_ms=2000)
    writer.begin_transaction()
    sent(see, "send", writer, topic, b"too slow")
    clients = admin(see)
    see.note("the coordinator aborts", until(lambda: _last_stable(clients, topic) == 2, 60))
    sent(see, "send late", writer, topic, b"late")
    see.call("commit late", writer.commit_transaction, 30)
    see.call("abort late", writer.abort_transaction, 30)
    see.call("begin", writer.begin_transaction)
    again = _transactional(see)
    see.call("another begins", again.begin_transaction)
    sent(see, "another sends", again, topic, b"another")
    see.call("another commits", again.commit_transaction, 30)
    _read_by_both(see, topic)


def ids_and_timeouts_of_transactions(see: Trace) -> None:
    for label, options in (
        ("an empty id", {"transactional_id": ""}),
        ("a long id", {"transactional_id": see.name("x" * 30_000)}),
        ("é", {"transactional_id": see.name("é")}),
        ("a long timeout", {"transactional_id": see.name("l"), "transaction_timeout_ms": 900_001}),
        ("the longest timeout", {"transactional_id": see.name("m"), "transaction_timeout_ms": 900_000}),
    ):
        writer = producer(see, **options)
        see.call(label, writer.init_transactions, 20)
        see.call(f"{label}: begin", writer.begin_transaction)


def offsets_in_transactions(see: Trace) -> None:
    topic, out = filled(see, "t", 5, 2), made(see, "out")
    places = [TopicPartition(topic, each) for each in (0, 1)]
    reader = consumer(see, topic, group_id=see.name("g"))
    polled(reader, 20)
    writer = _transactional(see)
    for number, end in enumerate(("commit", "abort", "commit")):
        writer.begin_transaction()
        sent(see, f"send {number}", writer, out, b"%d" % number)
        see.call(
            "offsets",
            writer.send_offsets_to_transaction,
            [TopicPartition(topic, 0, number + 1, metadata=f"m{number}", leader_epoch=0)],
            reader.consumer_group_metadata(),
            30,
        )
        see.call(end, getattr(writer, f"{end}_transaction"), 30)
        see.call(f"committed {number}", reader.committed, places, 20)
    for label, offsets in (
        ("no partition", [TopicPartition(topic, 9, 1)]),
        ("no topic", [TopicPartition(see.name("no"), 0, 1)]),
        ("large metadata", [TopicPartition(topic, 0, 1, metadata="m" * 5000)]),
        ("no offsets", []),
    ):
        writer.begin_transaction()
        see.call(label, writer.send_offsets_to_transaction, offsets, reader.consumer_group_metadata(), 6)
        see.call(f"{label}: commit", writer.commit_transaction, 30)
        see.call(f"{label}: abort", writer.abort_transaction, 30)
    see.call("committed at last", reader.committed, places, 20)
    reader.close()
    _read_by_both(see, out)


def offsets_of_members_that_left(see: Trace) -> None:
    topic = filled(see, "t", 3, 2)
    writer = _transactional(see)

    def commit(label: str, metadata: object, offset: int) -> None:
        writer.begin_transaction()
        offsets = [TopicPartition(topic, 0, offset)]
        see.call(label, writer.send_offsets_to_transaction, offsets, metadata, 10)
        see.call(f"{label}: commit", writer.commit_transaction, 30)
        see.call(f"{label}: abort", writer.abort_transaction, 30)

    for protocol in ("classic", "consumer"):
        options = {"group_id": see.name(protocol), "group_protocol": protocol}
        first = consumer(see, topic, **options)
        polled(first, 20)
        stale = first.consumer_group_metadata()
        second = consumer(see, topic, **options)

        def shared(first: Consumer = first, second: Consumer = second) -> bool:
            first.poll(0.1)
            second.poll(0.1)
            return len(first.assignment()) == len(second.assignment()) == 1

        see.call(f"{protocol}: two members", until, shared)
        commit(f"{protocol}: a stale generation", stale, 1)
        commit(f"{protocol}: a member", second.consumer_group_metadata(), 2)
        gone = second.consumer_group_metadata()
        second.close()
        commit(f"{protocol}: a member that left", gone, 3)
        first.close()
        commit(f"{protocol}: a member of an empty group", gone, 1)
        reader = consumer(see, group_id=see.name(protocol))
        commit(f"{protocol}: a consumer that never joined", reader.consumer_group_metadata(), 2)
        see.call(f"{protocol}: committed", reader.committed, [TopicPartition(topic, 0)], 20)
        reader.close()


def offsets_that_are_not_stable_yet(see: Trace) -> None:
    topic = filled(see, "t", 5)
    place = TopicPartition(topic, 0)
    reader = consumer(see, group_id=see.name("g"))
    reader.assign([place])
    see.call("commit", reader.commit, offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    writer = _transactional(see)
    writer.begin_transaction()
    writer.send_offsets_to_transaction([TopicPartition(topic, 0, 4)], reader.consumer_group_metadata(), 30)
    see.call("committed while it is open", _committed, see, "read_committed", topic)
    see.call("committed, read_uncommitted", _committed, see, "read_uncommitted", topic)
    clients = admin(see)
    request = [ConsumerGroupTopicPartitions(see.name("g"), [TopicPartition(topic, 0)])]
    for stable in (True, False):
        see.call(
            f"for an administrator, stable: {stable}",
            lambda stable=stable: [
                found.exception(20) or found.result().topic_partitions
                for found in clients.list_consumer_group_offsets(
                    request, require_stable=stable, request_timeout=3
                ).values()
            ],
        )
    see.call("commit meanwhile", reader.commit, offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    writer.commit_transaction(30)
    see.call("committed after the end", _committed, see, "read_committed", topic)
    reader.close()


def _committed(see: Trace, isolation: str, topic: str) -> object:
    reader: Consumer = consumer(see, group_id=see.name("g"), isolation_level=isolation)
    try:
        return reader.committed([TopicPartition(topic, 0)], 3)
    finally:
        reader.close()


def an_open_transaction_and_its_readers(see: Trace) -> None:
    topic = filled(see, "t", 2)
    writer = _transactional(see)
    writer.begin_transaction()
    sent(see, "send", writer, topic, b"open", b"open")
    place = TopicPartition(topic, 0)
    clients = admin(see)
    _read_by_both(see, topic)
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        for label, spec in (
            ("latest", OffsetSpec.latest()),
            ("earliest", OffsetSpec.earliest()),
            ("largest timestamp", OffsetSpec.max_timestamp()),
            ("timestamp", OffsetSpec.for_timestamp(2000)),
        ):
            see.call(
                f"{level} {label}",
                lambda level=level, spec=spec: clients.list_offsets({place: spec}, isolation_level=level),
            )
    writer.abort_transaction(30)
    _read_by_both(see, topic)


def a_topic_that_goes_in_a_transaction(see: Trace) -> None:
    topic, other = made(see, "t"), made(see, "u")
    writer = _transactional(see, message_timeout_ms=5000)
    writer.begin_transaction()
    sent(see, "send", writer, topic, b"v")
    sent(see, "send to another topic", writer, other, b"v")
    removed(see, topic)
    see.call("commit the rest", writer.commit_transaction, 30)
    see.call("begin", writer.begin_transaction)
    sent(see, "send", writer, other, b"w")
    see.call("commit", writer.commit_transaction, 30)
    _read_by_both(see, other)


def a_group_that_goes_in_a_transaction(see: Trace) -> None:
    topic = filled(see, "t", 5)
    clients = admin(see)
    place = [TopicPartition(topic, 0)]
    for end in ("commit", "abort"):
        for before in (True, False):
            group = see.name(f"{end}-{before}")
            label = f"{end}, {'an' if before else 'no'} offset before"
            reader = consumer(see, group_id=group)
            if before:
                reader.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
            writer = _transactional(see, group)
            writer.begin_transaction()
            metadata = reader.consumer_group_metadata()
            writer.send_offsets_to_transaction([TopicPartition(topic, 0, 4)], metadata, 30)
            see.call(f"{label}: delete", lambda group=group: clients.delete_consumer_groups([group]))
            see.call(f"{label}: {end}", getattr(writer, f"{end}_transaction"), 30)
            see.call(f"{label}: committed", reader.committed, place, 10)
            see.call(f"{label}: describe", lambda group=group: clients.describe_consumer_groups([group]))
            see.call(f"{label}: delete again", lambda group=group: clients.delete_consumer_groups([group]))
            see.call(f"{label}: committed at last", reader.committed, place, 10)
            reader.close()


def records_that_go_in_a_transaction(see: Trace) -> None:
    topic = filled(see, "t", 2)
    clients = admin(see)
    for end in ("commit", "abort"):
        writer = _transactional(see, end)
        writer.begin_transaction()
        sent(see, f"{end}: first", writer, topic, b"first", b"first")
        sent(see, f"{end}: second", writer, topic, b"second")
        see.call(f"{end}: delete", lambda: clients.delete_records([TopicPartition(topic, 0, OFFSET_END)]))
        sent(see, f"{end}: third", writer, topic, b"third")
        see.call(end, getattr(writer, f"{end}_transaction"), 30)
        _read_by_both(see, topic)
