"""Requests in flight on one connection see the effects of the requests before them."""

from __future__ import annotations

import pytest
from tests.integration.request_pairs import PAIRS, OneConnection

from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


@pytest.fixture
def connection(wire):
    return OneConnection(wire)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.__name__)
def test_a_pipelined_request_sees_what_the_one_before_it_has_changed(connection, pair):
    for turn in range(5):
        pair(connection, turn)


def test_a_fetch_that_waits_is_answered_when_another_request_comes_behind_it(connection):
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    poll = FetchRequest(
        max_wait_ms=600_000,
        min_bytes=1,
        topics=[FetchTopic(topic=connection.topic, partitions=[partition])],
    )
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=connection.topic)])
    fetched, described = connection.together((poll, 11), (asked, 8))
    assert not fetched.responses[0].partitions[0].records
    assert described.topics[0].name == connection.topic
