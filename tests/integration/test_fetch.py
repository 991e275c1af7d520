"""Fetch: bounds, long poll, sessions, epochs."""

import threading
import time

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.fetch import FetchRequest, ForgottenTopic
from barnabas.kafka.records import batches

#: A wait in milliseconds that outlasts the test's own: an answer after it is no answer.
NEVER = 2**31 - 1


@pytest.fixture
def fetch(wire, fetch_request):
    """Fetch, and return the answers by partition."""

    def send(topic, offsets, *, version=None, by=wire, **fields):
        response = by(fetch_request(topic, offsets, **fields), version)
        assert response.error_code == 0
        return {data.partition_index: data for t in response.responses for data in t.partitions}

    return send


def test_records_come_back_as_they_were_sent(topic, produce, batch, fetch, read_values):
    produce(topic, batch(b"a", b"b"))
    produce(topic, batch(b"c"))
    data = fetch(topic, {0: 0})[0]
    assert read_values(data) == [b"a", b"b", b"c"]
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (3, 3, 0)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_is_served(topic, produce, batch, fetch, read_values, version):
    produce(topic, batch(b"a"))
    assert read_values(fetch(topic, {0: 0}, version=version)[0]) == [b"a"]


def test_an_offset_inside_a_batch_returns_the_whole_batch(topic, produce, batch, fetch):
    produce(topic, batch(b"a", b"b", b"c"))
    produce(topic, batch(b"d"))
    data = fetch(topic, {0: 1})[0]
    assert [header.base_offset for _, header in batches(data.records)] == [0, 3]


def test_the_first_batch_is_sent_even_when_it_is_above_every_limit(topic, produce, batch, fetch, read_values):
    produce(topic, batch(bytes(5000)))
    produce(topic, batch(b"next"))
    data = fetch(topic, {0: 0}, max_bytes=10, partition_max_bytes=10)[0]
    assert read_values(data) == [bytes(5000)]


def test_only_the_first_partition_with_records_may_exceed_the_limit(make_topic, produce, batch, fetch):
    topic = make_topic(3)
    for partition in (1, 2):
        produce(topic, batch(bytes(5000)), partition=partition)
    found = fetch(topic, {0: 0, 1: 0, 2: 0}, max_bytes=100)
    assert [len(found[partition].records) > 5000 for partition in range(3)] == [False, True, False]


def test_partitions_share_the_bytes_of_an_answer(make_topic, produce, batch, fetch):
    topic = make_topic(2)
    for partition in (0, 1):
        for _ in range(10):
            produce(topic, batch(bytes(1000)), partition=partition)
    found = fetch(topic, {0: 0, 1: 0}, max_bytes=15_000)
    assert len(found[0].records) + len(found[1].records) <= 15_000
    assert len(found[1].records) > 0


def test_an_empty_partition_answers_at_once_when_told_not_to_wait(topic, fetch):
    data = fetch(topic, {0: 0}, max_wait_ms=0)[0]
    assert (data.error_code, len(data.records), data.high_watermark) == (0, 0, 0)


@pytest.mark.parametrize("offset", [-1, 2, 10**12])
def test_an_offset_outside_the_log_is_out_of_range(topic, produce, batch, fetch, offset):
    produce(topic, batch(b"a"))
    data = fetch(topic, {0: offset}, max_wait_ms=NEVER)[0]
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert data.high_watermark == -1


def test_what_does_not_exist_is_told_apart(topic, fetch):
    assert fetch(topic, {5: 0})[5].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    nowhere = topic._replace(name="nowhere", id=b"\x07" * 16)
    assert fetch(nowhere, {0: 0}, version=12)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(nowhere, {0: 0})[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_leader_epochs_are_checked(topic, fetch):
    assert fetch(topic, {0: 0}, leader_epoch=0)[0].error_code == 0
    assert fetch(topic, {0: 0}, leader_epoch=1)[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_an_offset_with_another_history_is_told_where_it_parts(topic, produce, batch, wire, fetch_request):
    produce(topic, batch(b"a"))
    request = fetch_request(topic, {0: 1})
    request.topics[0].partitions[0].last_fetched_epoch = 0
    assert wire(request).responses[0].partitions[0].diverging_epoch.epoch == -1
    request.topics[0].partitions[0].fetch_offset = 9
    diverging = wire(request).responses[0].partitions[0].diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (0, 1)


def test_read_committed_answers_with_an_empty_list_of_aborted_transactions(topic, produce, batch, fetch):
    produce(topic, batch(b"a"))
    assert fetch(topic, {0: 0}, isolation_level=1)[0].aborted_transactions == []
    assert fetch(topic, {0: 0}, isolation_level=0)[0].aborted_transactions is None


def test_a_request_of_a_broker_that_holds_no_replica_is_refused(topic, fetch):
    assert fetch(topic, {0: 0}, replica_id=5, version=12)[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


# --- long poll ---


def test_a_fetch_waits_for_records(topic, produce, batch, fetch, connect, read_values):
    writer = connect()
    timer = threading.Timer(0.1, lambda: produce(topic, batch(b"late"), by=writer))
    timer.start()
    data = fetch(topic, {0: 0}, max_wait_ms=NEVER)[0]
    assert read_values(data) == [b"late"]
    timer.join()


def test_a_fetch_waits_until_min_bytes_are_there(topic, produce, batch, fetch, connect, read_values):
    writer = connect()
    values = [bytes([n]) * 400 for n in range(4)]

    def write():
        for value in values:
            produce(topic, batch(value), by=writer)

    timer = threading.Timer(0.05, write)
    timer.start()
    data = fetch(topic, {0: 0}, max_wait_ms=50_000, min_bytes=1500)[0]
    assert read_values(data) == values
    timer.join()


def test_a_fetch_ends_with_what_there_is_when_its_time_is_up(topic, produce, batch, fetch, read_values):
    produce(topic, batch(b"little"))
    started = time.monotonic()
    data = fetch(topic, {0: 0}, max_wait_ms=200, min_bytes=10_000)[0]
    assert read_values(data) == [b"little"]
    assert time.monotonic() - started > 0.15


def test_deleting_the_topic_ends_the_wait(topic, fetch, connect):
    admin = connect()
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic.id)], timeout_ms=60_000)
    timer = threading.Timer(0.1, lambda: admin(delete))
    timer.start()
    data = fetch(topic, {0: 0}, max_wait_ms=50_000)[0]
    assert ErrorCode(data.error_code).retriable
    timer.join()


# --- sessions (KIP-227) ---


def test_a_session_answers_only_what_is_new(make_topic, wire, fetch_request, produce, batch):
    topic = make_topic(3)
    first = wire(fetch_request(topic, {0: 0, 1: 0, 2: 0}, session_epoch=0))
    assert first.session_id != 0
    assert [data.partition_index for data in first.responses[0].partitions] == [0, 1, 2]
    produce(topic, batch(b"a"), partition=1)
    second = wire(FetchRequest(session_id=first.session_id, session_epoch=1, min_bytes=1))
    assert second.session_id == first.session_id
    assert [data.partition_index for data in second.responses[0].partitions] == [1]
    moved = wire(fetch_request(topic, {1: 1}, session_id=first.session_id, session_epoch=2))
    assert moved.responses == []
    forget = [ForgottenTopic(topic_id=topic.id, partitions=[0])]
    produce(topic, batch(b"b"), partition=0)
    produce(topic, batch(b"c"), partition=2)
    last = wire(
        FetchRequest(session_id=first.session_id, session_epoch=3, min_bytes=1, forgotten_topics_data=forget)
    )
    assert [data.partition_index for data in last.responses[0].partitions] == [2]


def test_session_errors_have_their_codes(topic, wire, fetch_request):
    session = wire(fetch_request(topic, {0: 0}, session_epoch=0)).session_id
    wrong = wire(FetchRequest(session_id=session, session_epoch=7))
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = wire(FetchRequest(session_id=session ^ 1, session_epoch=1))
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    by_name = wire(FetchRequest(session_id=session, session_epoch=1), 12)
    assert by_name.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_deleted_topic_is_an_error_in_its_session(topic, wire, fetch_request):
    session = wire(fetch_request(topic, {0: 0}, session_epoch=0)).session_id
    wire(DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic.id)], timeout_ms=60_000))
    response = wire(FetchRequest(session_id=session, session_epoch=1, max_wait_ms=10_000))
    error = response.responses[0].partitions[0].error_code
    assert error in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_partitions_of_a_session_take_turns(make_topic, wire, fetch_request, produce, batch):
    topic = make_topic(2)
    for partition in (0, 1):
        for _ in range(4):
            produce(topic, batch(bytes(1000)), partition=partition)
    session = wire(fetch_request(topic, {0: 0, 1: 0}, session_epoch=0, max_bytes=1000)).session_id
    turns = []
    for epoch in range(1, 5):
        response = wire(FetchRequest(session_id=session, session_epoch=epoch, min_bytes=1, max_bytes=1000))
        turns += [d.partition_index for d in response.responses[0].partitions if d.records]
    assert turns in ([1, 0, 1, 0], [0, 1, 0, 1])


def test_limits_of_nothing_still_let_the_first_batch_out(topic, produce, batch, fetch, read_values):
    produce(topic, batch(b"a"))
    produce(topic, batch(b"b"))
    assert read_values(fetch(topic, {0: 0}, partition_max_bytes=0)[0]) == [b"a"]
    assert read_values(fetch(topic, {0: 0}, max_bytes=0)[0]) == [b"a"]


@pytest.mark.parametrize("limit", [-1, -(2**31)])
def test_limits_below_nothing_harm_no_one(topic, produce, batch, fetch, read_values, limit):
    produce(topic, batch(b"a"))
    fetch(topic, {0: 0}, partition_max_bytes=limit)
    fetch(topic, {0: 0}, max_bytes=limit)
    assert read_values(fetch(topic, {0: 0})[0]) == [b"a"]
