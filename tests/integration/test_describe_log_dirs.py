"""DescribeLogDirs: the log directories of partitions, and their sizes."""

import pytest

from barnabas.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


def sizes(response):
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for result in response.results
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 5))
def test_partitions_are_listed_with_their_size(make_topic, produce, batch, wire, version):
    topic = make_topic(2)
    data = batch(bytes(500))
    produce(topic, data, partition=1)
    wanted = [DescribableLogDirTopic(topic=topic.name, partitions=[0, 1])]
    response = wire(DescribeLogDirsRequest(topics=wanted), version)
    assert sizes(response) == {(topic.name, 0): 0, (topic.name, 1): len(data)}
    assert all(result.error_code == 0 and result.log_dir.startswith("/") for result in response.results)
    if version >= 4:
        assert response.results[0].total_bytes >= response.results[0].usable_bytes > 0


def test_null_asks_for_everything_and_an_empty_list_for_nothing(topic, wire):
    assert (topic.name, 0) in sizes(wire(DescribeLogDirsRequest(topics=None)))
    assert sizes(wire(DescribeLogDirsRequest(topics=[]))) == {}
