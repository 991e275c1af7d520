"""Brokers with partitions only: real fetchers and Fetch handlers, connected directly."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from types import SimpleNamespace

import pytest
from simulation.blocking import VirtualThreads
from simulation.clocks import ManualClock, VirtualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk
from simulation.virtual_time import run_virtual

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.awaitables import resolve
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.interbroker import DisconnectedError, NotConnectedError
from barnabas.broker.logs import LogDirectory
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.logs.incomplete import IncompleteReplicas
from barnabas.broker.logs.shared_fsync import FsyncsByDirectory
from barnabas.broker.metadata.image import BrokerImage, PartitionState
from barnabas.broker.replication.fetch_layout import UsualFetch
from barnabas.broker.replication.following import Following
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partition.progress import LeaderContext
from barnabas.broker.replication.throttles import Throttle
from barnabas.broker.server.fetching.sessions import FetchSessions
from barnabas.broker.server.handlers import fetch as handler
from barnabas.broker.storage import OpenFiles, Origin
from barnabas.broker.storage.truncation import begin_truncation, prepare_truncation, truncate_to
from barnabas.kafka.protocol.framing import (
    RequestHeader,
    encode_request,
    encode_response,
    parse_request,
    parse_response,
)
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.records.batch import batches
from barnabas.kafka.security.acls import UNRESTRICTED

TOPIC_ID = bytes(range(16))
#: seconds from a broker to another
JOURNEY = 0.001


class Node:
    """One broker."""

    def __init__(self, cluster, node_id, settings, topic_settings):
        self.cluster = cluster
        self.node_id = node_id
        self.config = BrokerConfig(**settings)
        self._topic_config = TopicConfig(**topic_settings)
        self.disk = FaultyDisk()
        self.start()

    def start(self):
        clock = VirtualClock(asyncio.get_running_loop())
        self.cluster.register(self.node_id)
        self.directory = LogDirectory.open(
            OpenFiles(self.disk),
            "/data",
            simulated_environment(clock=ManualClock()),
            cluster_id="c",
            node_id=self.node_id,
        )
        self.threads = VirtualThreads(random.Random(1), 0.0001)
        self.pool = self.threads.pool("disk", 2)
        self.shared_fsync = FsyncsByDirectory(self.threads)
        self.incomplete = IncompleteReplicas(self.pool)
        self.must_be_emptied = self.incomplete.must_be_emptied
        self.partitions = {}
        self.sessions = FetchSessions(10, clock, random.Random(self.node_id))
        self.throttle, self.leader_throttle = Throttle(clock), Throttle(clock)
        self.ports = handler.Ports(
            SimpleNamespace(find=self._find),
            self.sessions,
            SimpleNamespace(slices=_slices),
            ColdReads(self.threads),
            self,
            SimpleNamespace(leader=self.leader_throttle),
            SimpleNamespace(in_doubt=lambda partitions: []),
        )
        peers = SimpleNamespace(
            client_id="test",
            channel=lambda broker, purpose: SimpleNamespace(
                submit=lambda request, *, then, **_: self.cluster.submit(self, broker, request, then)
            ),
        )
        self.following = Following(self, peers, self, self.throttle)

    # This broker is its own view.

    @property
    def image(self):
        return SimpleNamespace(brokers=self.cluster.brokers)

    @property
    def broker_epoch(self):
        return self.cluster.brokers[self.node_id].epoch

    async def prepare_truncation(self, log, offset):
        """Truncate as the log manager does, with a separate write for each truncation."""
        truncation = begin_truncation(log, offset)
        if truncation is not None:
            await self.pool.run(truncation.run)
        _, is_lower = prepare_truncation(log, offset, truncation)
        if is_lower:
            try:
                await self.pool.run(self.directory.recovery_point_checkpoint().run)
            except OSError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return truncation

    async def store_log_start(self, log):
        """Store the log start as the log manager does."""
        self.directory.checkpoints.planned_starts.append([(log, log.log_start_offset)])
        try:
            checkpoint = self.directory.log_start_checkpoint()
            list(checkpoint.prepare())
            await self.pool.run(checkpoint.run)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            self.directory.checkpoints.planned_starts.clear()

    async def note_emptied(self, log):
        """Note an emptied log as the log manager does."""
        await self.store_log_start(log)
        await self.incomplete.note_emptied(log)

    def _find(self, topic, index):
        if (topic, index) not in self.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.partitions[topic, index]

    def learn(self, state, index=0):
        """Learn the state that the controller has decided."""
        partition = self.partitions.get((TOPIC_ID, index))
        if partition is None:
            known = self.directory.logs.get(TopicPartition("t", index))
            log = known or self.directory.create(TopicPartition("t", index), TOPIC_ID, self._topic_config)
            partition = self.partitions[TOPIC_ID, index] = Partition(
                log,
                state,
                self.node_id,
                flush_every=1 if self.config.barnabas_acks_fsync else None,
                on_flush_due=self.shared_fsync.add,
                context=LeaderContext(lambda: self.cluster.brokers, asyncio.get_running_loop().time),
            )
        else:
            partition.update(state)
        self.following.partition_changed(partition)

    def partition(self, index=0):
        return self.partitions[TOPIC_ID, index]

    @property
    def log(self):
        return self.partition().log

    def produce(self, *values, index=0, **header):
        records = [Record(None, value, timestamp=0) for value in values]
        return self.partition(index).append(encode_batch(records, **header), 1, Origin.CLIENT)

    def content(self, index=0):
        """Return (base offset, leader epoch) of each batch."""
        log = self.partition(index).log
        found = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            chunks = log.read(offset, 1 << 20, log.log_end_offset).chunks
            if not chunks:
                break
            for _, header in batches(b"".join(map(bytes, chunks))):
                found.append((header.base_offset, header.leader_epoch))
                offset = header.next_offset
        return found

    async def stop(self):
        await self.following.stop()
        await self.shared_fsync.stop()
        await self.pool.close()

    async def crash(self):
        """End the process. All written data is on the disk."""
        del self.cluster.nodes[self.node_id]
        await self.stop()
        for log in self.directory.logs.values():
            log.abandon()
        self.disk.process_ended()

    def restart(self, *, end=None):
        """Start the process again.

        Args:
            end: the new end of the log; the disk has lost the data after it.
        """
        self.start()
        self.cluster.nodes[self.node_id] = self
        self.directory.adopt(self.directory.load(TopicPartition("t", 0), TOPIC_ID, self._topic_config))
        if end is not None:
            truncate_to(self.directory.logs[TopicPartition("t", 0)], end)


class Cluster:
    """Nodes, the decisions of the controller, and the connections between the nodes.

    Attributes:
        requests: all sent requests: (from, to, request).
        cut: pairs (from, to) of brokers between which requests fail.
        held: by (from, to), the answers that wait until `release`.
        alter: called with (from, to, request, response) to change a response; None for no change.
        instead: called with the request, to answer it at once instead of the leader; None for the leader.
    """

    def __init__(self):
        self.brokers = {}
        self.nodes = {}
        self.requests = []
        self.cut = set()
        self.held = {}
        self.alter = None
        self.instead = None
        self._parked = {}

    def add(self, *ids, topic=None, **settings):
        for node_id in ids:
            self.nodes[node_id] = Node(self, node_id, settings, topic or {})
        return [self.nodes[node_id] for node_id in ids]

    def register(self, node_id):
        epoch = self.brokers[node_id].epoch + 10 if node_id in self.brokers else 100 + node_id
        self.brokers[node_id] = BrokerImage(node_id, (), epoch=epoch)

    def elect(self, leader, epoch, *, isr=None, only=None, index=0, partition_epoch=None):
        """Tell all brokers, or `only` some, of a leader."""
        replicas = tuple(self.brokers)
        state = PartitionState(
            replicas,
            tuple(isr or replicas),
            leader,
            epoch,
            epoch if partition_epoch is None else partition_epoch,
        )
        for node in only or self.nodes.values():
            node.learn(state, index)

    def submit(self, source, target, request, then):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        task = loop.create_task(self._carry(source, target, request, future, then))
        queue = self._parked.setdefault((source.node_id, target), deque())
        queue.append(task)
        future.add_done_callback(lambda _: task.cancel() if not task.done() else None)
        task.add_done_callback(queue.remove)
        return future

    async def _carry(self, source, target, request, future, then):
        pair = (source.node_id, target)
        is_usual = isinstance(request, UsualFetch)
        if is_usual:
            frame = request.encode(1)[4:]
        else:
            frame = b"".join(map(bytes, encode_request(RequestHeader(1, 17, 1, "test"), request)))[4:]
        header, message = parse_request(frame)
        self.requests.append((*pair, message))
        await asyncio.sleep(JOURNEY)
        if pair in self.cut or target not in self.nodes:
            if not future.done():
                future.set_exception(NotConnectedError(f"no connection to {target}"))
                then(future)
            return
        context = SimpleNamespace(api_version=17, access=UNRESTRICTED)
        answer = None if self.instead is None else self.instead(message)
        if answer is None:
            answer = handler.fetch.handle(self.nodes[target].ports, context, message)
        response = await resolve(answer)
        frame = b"".join(map(bytes, encode_response(header, response)))[4:]
        await asyncio.sleep(JOURNEY)
        if pair in self.held:
            await self.held[pair].wait()
        if pair in self.cut:
            if not future.done():
                future.set_exception(DisconnectedError("cut"))
                then(future)
            return
        if self.alter is not None:
            response = parse_response(header, frame)
            response = self.alter(*pair, message, response) or response
        else:
            response = (request.decode(frame) if is_usual else None) or parse_response(header, frame)
        if not future.done():
            future.set_result(response)
            then(future)

    def hold(self, source, target):
        """Delay the answers from `target` to `source` until the returned event is set."""
        self.held[source.node_id, target.node_id] = asyncio.Event()
        return self.held[source.node_id, target.node_id]

    def under_way(self, source, target):
        """Return the number of requests without an answer."""
        return len(self._parked[source.node_id, target.node_id])

    def fetches(self, source):
        """Return the requests of a broker since the last call."""
        found = [request for sender, _, request in self.requests if sender == source.node_id]
        self.requests = [item for item in self.requests if item[0] != source.node_id]
        return found

    async def settle(self, seconds=2.0):
        await asyncio.sleep(seconds)

    async def stop(self):
        for node in self.nodes.values():
            await node.stop()


async def _slices(steps):
    for step in steps:
        yield step


def _play(story):
    async def play():
        cluster = Cluster()
        try:
            return await story(cluster)
        finally:
            await cluster.stop()

    return run_virtual(play())


@pytest.fixture
def scenario():
    """Run `async def scenario(cluster)` in virtual time."""

    return _play


@pytest.fixture(scope="module")
def run_story():
    """Return the same function as `scenario`, for tests that run many scenarios."""
    return _play
