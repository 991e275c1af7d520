"""Consumers of confluent-kafka that choose their partitions, one program a function."""

from __future__ import annotations

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    Consumer,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions
from tests.compat.programs.confluent_clients import (
    admin,
    consumer,
    everything_read,
    fill,
    filled,
    made,
    polled,
    producer,
    removed,
    sent,
    to_the_end,
    until,
)
from tests.compat.programs.confluent_producers import INVALID_NAMES
from tests.compat.programs.trace import Trace


def seeks_and_pauses(see: Trace) -> None:
    topic = filled(see, "t", partitions=2)
    zero, one = (TopicPartition(topic, each) for each in (0, 1))
    reader = consumer(see, enable_partition_eof=True)
    see.call("seek unassigned", reader.seek, TopicPartition(topic, 0, 3))
    see.call("assign", reader.assign, [zero, one])
    see.call("assignment", reader.assignment)
    see.call("position", reader.position, [zero, one])
    see.call("read", to_the_end, reader, 2)
    see.call("position after", reader.position, [zero, one])
    for offset in (3, OFFSET_BEGINNING, OFFSET_END, 1000, 5, 4):
        see.call(f"seek to {offset}", reader.seek, TopicPartition(topic, 0, offset))
        see.call(f"read from {offset}", to_the_end, reader, 1)
        see.call(f"position after {offset}", reader.position, [zero])
    see.call("seek to no partition", reader.seek, TopicPartition(topic, 9, 1))
    see.call("pause", reader.pause, [zero])
    reader.seek(TopicPartition(topic, 0, 0))
    reader.seek(TopicPartition(topic, 1, 4))
    see.call("read the other", polled, reader, 2, 9)
    see.call("resume", reader.resume, [zero])
    see.call("read resumed", to_the_end, reader, 1)
    see.call("pause no partition", reader.pause, [TopicPartition(topic, 9)])
    see.call("consume", lambda: len(reader.consume(10, 0.5)))
    see.call("unassign", reader.unassign)
    see.call("poll unassigned", reader.poll, 0.3)
    see.call("close", reader.close)
    see.call("poll closed", reader.poll, 0.1)


def watermarks_and_times(see: Trace) -> None:
    topic = filled(see, "t", partitions=2)
    zero = TopicPartition(topic, 0)
    none, nowhere = TopicPartition(topic, 9), TopicPartition(see.name("no"), 0)
    reader = consumer(see, enable_partition_eof=True)
    see.call("watermarks", reader.get_watermark_offsets, zero, 10)
    see.call("cached before", reader.get_watermark_offsets, zero, cached=True)
    see.call("watermarks of no partition", reader.get_watermark_offsets, none, 3)
    see.call("watermarks of no topic", reader.get_watermark_offsets, nowhere, 3)
    for moment in (0, 1000, 1015, 1040, 1041, 5000, OFFSET_END, OFFSET_BEGINNING, -3, -4, -5):
        see.call(f"at {moment}", reader.offsets_for_times, [TopicPartition(topic, 0, moment)], 5)
    see.call(
        "at times of several",
        reader.offsets_for_times,
        [TopicPartition(topic, 0, 1010), TopicPartition(topic, 1, 1020)],
        5,
    )
    see.call("at a time of no partition", reader.offsets_for_times, [TopicPartition(topic, 9, 1)], 3)
    see.call("at a time of no topic", reader.offsets_for_times, [TopicPartition(see.name("no"), 0, 1)], 3)
    reader.assign([zero])
    to_the_end(reader, 1)
    see.call("cached after", reader.get_watermark_offsets, zero, cached=True)
    clients = admin(see)
    see.call("delete records", lambda: clients.delete_records([TopicPartition(topic, 0, 3)]))
    see.call("watermarks after a deletion", reader.get_watermark_offsets, zero, 10)
    see.call("at 0 after a deletion", reader.offsets_for_times, [TopicPartition(topic, 0, 0)], 5)
    see.call("metadata", lambda: _shape(reader, topic))
    reader.close()


def _shape(reader: Consumer, topic: str) -> object:
    found = reader.list_topics(topic, 10).topics[topic]
    return {
        number: (each.leader, each.replicas, each.isrs, each.error)
        for number, each in sorted(found.partitions.items())
    }


def positions_out_of_range(see: Trace) -> None:
    topic = filled(see, "t")
    clients = admin(see)
    clients.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0)].result(20)
    for reset in ("earliest", "latest", "error"):
        reader = consumer(see, auto_offset_reset=reset, enable_partition_eof=True)
        for offset in (0, 2, 5, 99, OFFSET_STORED, OFFSET_INVALID):
            reader.assign([TopicPartition(topic, 0, offset)])
            see.call(f"{reset} from {offset}", lambda reader=reader: _first(reader))
            see.call(f"{reset} position from {offset}", reader.position, [TopicPartition(topic, 0)])
        reader.close()


def _first(reader: Consumer) -> list[Message]:
    return polled(reader, 10, 1)


def assignments_that_grow_and_shrink(see: Trace) -> None:
    topic = filled(see, "t", 2, partitions=3)
    reader = consumer(see, enable_partition_eof=True)
    places = [TopicPartition(topic, each) for each in range(3)]
    see.call("add one", reader.incremental_assign, places[:1])
    see.call("read one", to_the_end, reader, 1)
    see.call("add two", reader.incremental_assign, places[1:])
    see.call("read two", to_the_end, reader, 2)
    see.call("assignment", lambda: sorted(reader.assignment(), key=lambda each: each.partition))
    see.call("add twice", reader.incremental_assign, places[1:2])
    see.call("remove", reader.incremental_unassign, places[:2])
    see.call("remove twice", reader.incremental_unassign, places[:1])
    see.call("assignment", reader.assignment)
    see.call("add at an offset", reader.incremental_assign, [TopicPartition(topic, 0, 1)])
    see.call("read at an offset", to_the_end, reader, 1)
    see.call("add no partition", reader.incremental_assign, [TopicPartition(topic, 9)])
    see.call("read no partition", polled, reader, 3)
    reader.close()


def commits_of_every_kind(see: Trace) -> None:
    topic = filled(see, "t", partitions=2)
    zero, one = (TopicPartition(topic, each) for each in (0, 1))
    done: list[object] = []
    reader = consumer(
        see,
        enable_auto_offset_store=False,
        on_commit=lambda error, offsets: done.append((error, offsets)),
    )
    reader.assign([zero, one])
    see.call("committed", reader.committed, [zero, one], 10)
    see.call("commit nothing", reader.commit, asynchronous=False)
    records = polled(reader, 10, 10)
    see.call("commit what is not stored", reader.commit, asynchronous=False)
    see.call("store", reader.store_offsets, records[1])
    see.call("store by offset", reader.store_offsets, offsets=[TopicPartition(topic, 1, 4, leader_epoch=0)])
    see.call("commit what is stored", reader.commit, asynchronous=False)
    see.call("committed stored", reader.committed, [zero, one], 10)
    see.call("commit a record", reader.commit, records[3], asynchronous=False)
    for label, place in (
        ("an offset", TopicPartition(topic, 0, 2, metadata="two", leader_epoch=0)),
        ("a far offset", TopicPartition(topic, 0, 2000, metadata="far", leader_epoch=5)),
        ("a negative offset", TopicPartition(topic, 0, -7)),
        ("large metadata", TopicPartition(topic, 0, 1, metadata="m" * 5000)),
        ("no partition", TopicPartition(topic, 9, 1)),
        ("no topic", TopicPartition(see.name("no"), 0, 1)),
        ("an invalid topic", TopicPartition("a b", 0, 1)),
    ):
        see.call(f"commit {label}", reader.commit, offsets=[place], asynchronous=False)
        see.call(f"committed {label}", reader.committed, [TopicPartition(place.topic, place.partition)], 10)
    see.call(
        "commit good and bad",
        reader.commit,
        offsets=[TopicPartition(topic, 0, 3), TopicPartition(topic, 9, 3)],
        asynchronous=False,
    )
    see.call("committed of both", reader.committed, [zero, TopicPartition(topic, 9)], 10)
    done.clear()
    see.call("asynchronously", reader.commit, offsets=[TopicPartition(topic, 0, 4)])
    until(lambda: reader.poll(0.1) or done, 10)
    see.note("told", done)
    see.call("store what is not assigned", reader.store_offsets, offsets=[TopicPartition(topic, 9, 4)])
    reader.close()


def names_of_groups(see: Trace) -> None:
    topic = filled(see, "t", 1)
    for name in ("x" * 300, "é", "a/b", "."):
        reader = consumer(see, group_id=name)
        place = [TopicPartition(topic, 0, 1)]
        see.call(f"commit {name}", reader.commit, offsets=place, asynchronous=False)
        see.call(f"committed {name}", reader.committed, place, 10)
        reader.close()


def automatic_commits(see: Trace) -> None:
    topic = filled(see, "t", 4)
    place = TopicPartition(topic, 0)
    for protocol in ("classic", "consumer"):
        group = see.name(protocol)
        options = {"group_id": group, "group_protocol": protocol, "enable_auto_commit": True}
        reader = consumer(see, topic, **options)
        see.note(f"{protocol} read", polled(reader, 20, 4))
        reader.close()
        reader = consumer(see, group_id=group)
        see.call(f"{protocol} committed", reader.committed, [place], 10)
        reader.close()


def topics_that_a_consumer_does_not_find(see: Trace) -> None:
    for protocol in ("classic", "consumer"):
        topic = see.name(f"{protocol}-no")
        options = {"group_id": see.name(protocol), "group_protocol": protocol}
        reader = consumer(see, topic, topic_metadata_refresh_interval_ms=500, **options)
        see.call(f"{protocol}: the first event", polled, reader, 5)
        filled(see, f"{protocol}-no", 1)
        see.call(f"{protocol}: after its creation", lambda reader=reader: _records(reader, 1))
        reader.close()
        reader = consumer(see, group_id=see.name(f"{protocol}-direct"), group_protocol=protocol)
        reader.assign([TopicPartition(see.name(f"{protocol}-none"), 0, 0)])
        see.call(f"{protocol}: assigned", polled, reader, 5)
        reader.close()


def _records(reader: Consumer, count: int, seconds: float = 20) -> list[object]:
    """Poll until this number of records has come. Return their topics' ends, partitions and offsets."""
    found: list[object] = []

    def enough() -> bool:
        one = reader.poll(0.1)
        if one is not None and one.error() is None:
            found.append((one.topic(), one.partition(), one.offset(), one.value()))
        return len(found) >= count

    until(enough, seconds)
    return sorted(found, key=repr)


def topics_that_a_consumer_may_create(see: Trace) -> None:
    for protocol in ("classic", "consumer"):
        topic = see.name(f"{protocol}-new")
        options = {"group_id": see.name(protocol), "group_protocol": protocol}
        reader = consumer(
            see, topic, allow_auto_create_topics=True, topic_metadata_refresh_interval_ms=500, **options
        )
        until(lambda reader=reader: reader.poll(0.2), 3)
        see.note(f"{protocol}: assigned before there are records", reader.assignment())
        fill(see, topic, 1)
        see.call(f"{protocol}: read", lambda reader=reader: _records(reader, 1))
        reader.close()


def subscriptions_with_invalid_names(see: Trace) -> None:
    for protocol in ("classic", "consumer"):
        for name in INVALID_NAMES:
            reader = consumer(see, group_id=see.name(protocol), group_protocol=protocol)
            see.call(f"{protocol} {name}", reader.subscribe, [name])
            see.call(f"{protocol} {name} event", polled, reader, 2)
            reader.close()
        reader = consumer(see, group_id=see.name(protocol), group_protocol=protocol)
        see.call(f"{protocol} no topics", reader.subscribe, [])
        see.call(f"{protocol} an empty name", reader.subscribe, [""])
        see.call(f"{protocol} an invalid pattern", reader.subscribe, ["^("])
        reader.close()


def a_topic_that_goes_under_a_reader(see: Trace) -> None:
    topic = filled(see, "t", 3)
    reader = consumer(see, enable_partition_eof=True, topic_metadata_refresh_interval_ms=500)
    reader.assign([TopicPartition(topic, 0)])
    see.call("read", to_the_end, reader, 1)
    removed(see, topic)
    see.call("after the deletion", polled, reader, 10)
    see.call("position", reader.position, [TopicPartition(topic, 0)])
    see.call("watermarks", reader.get_watermark_offsets, TopicPartition(topic, 0), 3)
    filled(see, "t", 2)
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    see.call("the new topic", lambda: _records(reader, 2))
    reader.close()


def records_that_go_under_a_reader(see: Trace) -> None:
    topic = filled(see, "t", 6)
    reader = consumer(see, enable_partition_eof=True, queued_min_messages=1, fetch_message_max_bytes=70)
    reader.assign([TopicPartition(topic, 0, 0)])
    see.call("read one", polled, reader)
    clients = admin(see)
    clients.delete_records([TopicPartition(topic, 0, 5)])[TopicPartition(topic, 0)].result(20)
    reader.seek(TopicPartition(topic, 0, 1))
    see.call("read deleted", to_the_end, reader, 1)
    clients.delete_records([TopicPartition(topic, 0, OFFSET_END)])[TopicPartition(topic, 0)].result(20)
    reader.seek(TopicPartition(topic, 0, 1))
    see.call("read nothing", to_the_end, reader, 1)
    reader.close()


def partitions_that_appear_under_a_group(see: Trace) -> None:
    topic = filled(see, "t", 1)
    clients = admin(see)
    for number, protocol in enumerate(("classic", "consumer"), 1):
        reader = consumer(
            see,
            topic,
            group_id=see.name(protocol),
            group_protocol=protocol,
            topic_metadata_refresh_interval_ms=500,
        )
        see.call(f"{protocol} before", lambda reader=reader, count=number: _records(reader, count))
        see.call("grow", lambda count=number + 1: clients.create_partitions([NewPartitions(topic, count)]))
        writer = producer(see, topic_metadata_refresh_interval_ms=300)
        see.note(f"{protocol} grown", until(lambda count=number + 1: _partitions(see, topic) == count))
        sent(see, f"{protocol} send", writer, topic, b"new", partition=number)
        see.call(f"{protocol} after", lambda reader=reader: _records(reader, 1))
        reader.close()


def _partitions(see: Trace, topic: str) -> int:
    clients = admin(see)
    return len(clients.list_topics(topic, 10).topics[topic].partitions)


def limits_of_fetches(see: Trace) -> None:
    topic = made(see, "t")
    writer = producer(see, batch_num_messages=1)
    for number in range(6):
        writer.produce(topic, b"%d" % number * 3000)
    writer.flush(20)
    for options in (
        {"fetch_message_max_bytes": 100},
        {"fetch_max_bytes": 7000, "message_max_bytes": 7000},
        {"fetch_min_bytes": 30_000, "fetch_wait_max_ms": 700},
        {"check_crcs": True},
        {"queued_min_messages": 1},
    ):
        everything_read(see, topic, label=f"{options}", **options)


def settings_that_a_consumer_rejects(see: Trace) -> None:
    topic = filled(see, "t", 1)
    for options in (
        {"auto_offset_reset": "none such"},
        {"partition_assignment_strategy": "none such"},
        {"partition_assignment_strategy": "range,cooperative-sticky"},
        {"session_timeout_ms": 0},
        {"group_protocol": "consumer", "session_timeout_ms": 6000},
        {"group_protocol": "consumer", "partition_assignment_strategy": "range"},
        {"group_protocol": "none such"},
        {"isolation_level": "none such"},
    ):
        see.call(f"{options}", lambda options=options: type(consumer(see, **options)).__name__)
    for options in (
        {"session_timeout_ms": 1000, "heartbeat_interval_ms": 300},
        {"session_timeout_ms": 3_000_000, "max_poll_interval_ms": 4_000_000},
        {"group_protocol": "consumer", "group_remote_assignor": "none such"},
        {"group_protocol": "consumer", "group_remote_assignor": "range"},
        {"group_protocol": "consumer", "group_remote_assignor": "uniform"},
    ):
        reader = consumer(see, topic, group_id=see.name(f"{options.values()}"[-40:]), **options)
        see.call(f"{options} event", polled, reader, 6)
        reader.close()
