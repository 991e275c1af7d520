"""A simulated cluster that answers the requests of pages and notes them."""

from __future__ import annotations

import threading
from collections import Counter
from types import SimpleNamespace

from barnabas.client.addresses import Address
from barnabas.client.brokers import BrokerResponses
from barnabas.client.repeated import Repeated
from barnabas.console.survey import AT_ONCE

PARTITIONS = 10
SIZE = 100


class Cluster:
    """One broker with topics of ten partitions, and groups that have committed offset 0 in one partition.

    It notes the requests. Each partition ends at 7. A request for many partitions is answered when `answers`
    is set.
    """

    def __init__(self, topics: int, groups: int = 0) -> None:
        self.servers = "127.0.0.1:1"
        self.asked: Counter[str] = Counter()
        #: of how many partitions the largest request of a kind was, and all of them together
        self.largest: Counter[str] = Counter()
        self.partitions: Counter[str] = Counter()
        self.answers = threading.Event()
        self.answers.set()
        #: the addresses of brokers that have been seen
        self.known: dict[int, Address] = {}
        self._groups = [f"group-{n:05}" for n in range(groups)]
        self._topics = [
            SimpleNamespace(name=f"topic-{n:05}", topic_id=bytes(16), is_internal=False, partitions=_row())
            for n in range(topics)
        ]
        broker = SimpleNamespace(node_id=1, host="127.0.0.1", port=9092, rack=None)
        self._metadata = SimpleNamespace(
            cluster_id="c", controller_id=1, brokers=[broker], topics=self._topics
        )

    def metadata(self):
        return self._metadata

    def address_of(self, broker):
        return self.known.get(broker)

    def coordinators(self, groups):
        return dict.fromkeys(groups, 1)

    def close(self):
        pass

    def ask_once(self, request, response_timeout=None):
        return self.ask(1, request)

    def ask_every(self, request):
        return self.ask_each({1: request})

    def ask_each(self, requests, max_version=None, **_):
        self.max_version = max_version
        return BrokerResponses(
            {broker: self.ask(broker, request) for broker, request in requests.items()}, {}
        )

    def ask(self, broker, request):
        request = request.request if isinstance(request, Repeated) else request
        kind = type(request).__name__.removesuffix("Request")
        self.asked[kind] += 1
        return getattr(self, f"_{kind}")(request)

    def _Metadata(self, request):
        return self._metadata

    def _note(self, kind, count):
        self.largest[kind] = max(self.largest[kind], count)
        self.partitions[kind] += count

    def _DescribeCluster(self, request):
        return SimpleNamespace(error_code=0, controller_id=1)

    def _ListGroups(self, request):
        listed = [
            SimpleNamespace(group_id=g, group_state="Empty", group_type="classic", protocol_type="consumer")
            for g in self._groups
        ]
        return SimpleNamespace(groups=listed)

    def _OffsetFetch(self, request):
        self._note("OffsetFetch", len(request.groups))
        found = []
        for group in request.groups:
            number = int(group.group_id.rpartition("-")[2]) % len(self._topics)
            partition = SimpleNamespace(partition_index=0, committed_offset=0, error_code=0)
            topic = SimpleNamespace(name=f"topic-{number:05}", topic_id=bytes(16), partitions=[partition])
            found.append(SimpleNamespace(group_id=group.group_id, error_code=0, topics=[topic]))
        return SimpleNamespace(groups=found)

    def _ListOffsets(self, request):
        count = sum(len(topic.partitions) for topic in request.topics)
        assert count < AT_ONCE or self.answers.wait(60)
        self._note("ListOffsets", count)
        told = [
            SimpleNamespace(
                name=topic.name,
                partitions=[
                    SimpleNamespace(
                        partition_index=p.partition_index, error_code=0, offset=7 if p.timestamp == -1 else 2
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return SimpleNamespace(topics=told)

    def _DescribeLogDirs(self, request):
        assert request.topics is not None, "a page asks for every replica at once"
        self._note("DescribeLogDirs", sum(len(topic.partitions) for topic in request.topics))
        told = [
            SimpleNamespace(
                name=topic.topic,
                partitions=[
                    SimpleNamespace(partition_index=index, partition_size=SIZE) for index in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        directory = SimpleNamespace(
            log_dir="/data", error_code=0, topics=told, total_bytes=-1, usable_bytes=-1
        )
        return SimpleNamespace(error_code=0, results=[directory])

    def _ListPartitionReassignments(self, request):
        return SimpleNamespace(topics=[])


def _row():
    return [
        SimpleNamespace(partition_index=n, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1])
        for n in range(PARTITIONS)
    ]
