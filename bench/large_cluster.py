"""Measures the cost of 100 brokers and 200,000 partitions for the controller, each broker and ZooKeeper.

    python -m bench.large_cluster [--brokers 100] [--partitions 200000] [--new 10000] [--zookeeper]

One process simulates the cluster. Two brokers have real metadata code: the controller, and one that follows
the controller. The other brokers are only registered, and no broker has records. The metadata store is in
memory and counts its operations; `--zookeeper` uses a real ZooKeeper instead. The benchmark estimates the
load of ZooKeeper from rates measured on a real one (``_READS``, ``_WRITES``, ``_EVENTS``). The estimate
assumes that every broker reads as much as the one that follows.

After a failover, the new controller logs its own time. It ends when every partition that needs another leader
has one, and no ISR contains a dead broker.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from simulation.memory_store import MemoryServer, MemoryStore

from barnabas.base.environment.clock import SystemClock
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_BROKER, BrokerId, TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import Controller, NewTopic
from barnabas.broker.controller.elections import ElectionType
from barnabas.broker.controller.partitions import IsrProposal
from barnabas.broker.controller.placement import place_replicas
from barnabas.broker.metadata import ClusterImage, MetadataLoader, znodes
from barnabas.broker.metadata.batches import batches
from barnabas.broker.metadata.image import (
    BrokerEndpoint,
    BrokerImage,
    BrokerState,
    PartitionState,
    TopicImage,
)
from barnabas.broker.metadata.opening import prepare
from barnabas.broker.metadata.store import (
    Cancel,
    Create,
    Event,
    MetadataStore,
    Operation,
    SessionListener,
    SessionState,
    Set,
    SingleOperations,
    StoreNode,
    Watcher,
)
from barnabas.broker.metadata.zookeeper.address import parse_address
from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer
from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore
from barnabas.broker.view import MutableView
from barnabas.kafka.protocol.schema import Request

#: of one ZooKeeper 3.9 on two busy cores, a second: nodes by multiRead, sets in transactions of 200, and
#: watch events sent to clients
_READS, _WRITES, _EVENTS = 50_000, 22_000, 8_000
#: servers of the ensemble, which share its clients
_SERVERS = 3
#: seconds: those of a session in a real ZooKeeper
_SESSION_TIMEOUT = 18.0
_TOPIC = 100
_REPLICAS = 3


@dataclass
class Count:
    """A number of operations and of their bytes, including the paths."""

    reads: int = 0
    read_bytes: int = 0
    writes: int = 0
    written_bytes: int = 0
    transactions: int = 0
    events: int = 0

    def __sub__(self, other: Count) -> Count:
        return Count(*(a - b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def copy(self) -> Count:
        return Count(*vars(self).values())


class CountingStore(SingleOperations):
    """A session that counts its operations. It uses a tree in memory or a real ZooKeeper."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._is_watched = False
        self.count = Count()

    @property
    def session_id(self) -> int:
        return self._store.session_id

    @property
    def session_timeout(self) -> float:
        return self._store.session_timeout

    @property
    def state(self) -> SessionState:
        return self._store.state

    @property
    def is_certain(self) -> bool:
        return self._store.is_certain

    def on_state(self, listener: SessionListener) -> Cancel:
        return self._store.on_state(listener)

    async def sync(self) -> None:
        await self._store.sync()

    async def close(self) -> None:
        await self._store.close()

    async def get(self, path: str) -> StoreNode:
        node = await self._store.get(path)
        self._note([path], [node])
        return node

    async def exists(self, path: str) -> StoreNode | None:
        node = await self._store.exists(path)
        self._note([path], [node])
        return node

    async def read(self, paths: Sequence[str]) -> list[StoreNode | None]:
        nodes = await self._store.read(paths)
        self._note(paths, nodes)
        await asyncio.sleep(0)
        return nodes

    async def children(self, path: str) -> list[str]:
        names = await self._store.children(path)
        self.count.reads += 1
        self.count.read_bytes += len(path) + sum(map(len, names))
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        count = self.count
        count.transactions += 1
        for operation in operations:
            data = operation.data if isinstance(operation, Create | Set) else b""
            count.writes += isinstance(operation, Create | Set)
            count.written_bytes += len(operation.path) + len(data)
        await asyncio.sleep(0)
        return await self._store.multi(operations)

    async def watch(self, path: str, watcher: Watcher) -> Cancel:
        # The ensemble sends each event once, although several watchers of this client watch all nodes.
        if self._is_watched:
            return await self._store.watch(path, watcher)
        self._is_watched = True

        def noted(event: Event, changed: str) -> None:
            self.count.events += 1
            watcher(event, changed)

        return await self._store.watch(path, noted)

    def _note(self, paths: Sequence[str], nodes: Sequence[StoreNode | None]) -> None:
        self.count.reads += len(paths)
        self.count.read_bytes += sum(
            len(p) + (len(n.data) if n else 0) for p, n in zip(paths, nodes, strict=True)
        )


async def _nobody(broker: BrokerId, request: Request) -> object:
    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)


class Member:
    """A broker, as far as it concerns metadata."""

    def __init__(self, store: CountingStore, number: BrokerId) -> None:
        self.store = store
        self.loader = MetadataLoader(self.store)
        config = BrokerConfig(node_id=number, min_insync_replicas=2)
        view = MutableView(config, SystemClock())
        view.follow(self.loader)
        self.controller = Controller(self.store, self.loader, view, _broker(number), Random(number), _nobody)

    async def start(self) -> None:
        await self.loader.start()
        await self.controller.start()

    @property
    def image(self) -> ClusterImage:
        return self.loader.image

    async def stop(self) -> None:
        await self.controller.stop()
        await self.loader.stop()


def _broker(number: BrokerId) -> BrokerImage:
    endpoint = BrokerEndpoint("PLAINTEXT", f"broker-{number}.example", 9092)
    return BrokerImage(number, (endpoint,), f"rack-{number % 3}")


class Cluster:
    """The whole cluster, and the table of the results."""

    def __init__(self, brokers: int, partitions: int, new: int, zookeeper: str | None = None) -> None:
        self.brokers, self.partitions = brokers, partitions
        #: partitions of the topic that is created at the end
        self.new = new
        self.server = MemoryServer()
        #: its address; None for the store in memory
        self.zookeeper = zookeeper
        self.controller: Member
        self.follower: Member
        self.others: dict[BrokerId, MetadataStore] = {}

    async def _session(self) -> CountingStore:
        if self.zookeeper is None:
            return CountingStore(MemoryStore(self.server))
        address = parse_address(self.zookeeper)
        return CountingStore(await ZooKeeperStore.open(address, session_timeout=_SESSION_TIMEOUT))

    async def run(self) -> None:
        preparing = await self._session()
        await prepare(preparing, Random(1))
        await preparing.close()
        self.controller, self.follower = Member(await self._session(), 1), Member(await self._session(), 2)
        await self.controller.start()
        await self.follower.start()
        for number in range(3, self.brokers + 1):
            await self._register(number, _broker(number))
        await self._until(lambda: len(self.controller.image.admitted) == self.brokers)
        began = time.perf_counter()
        await self._populate()
        print(f"(made in {time.perf_counter() - began:.0f} s)", file=sys.stderr, flush=True)
        await self._measure("all brokers start: each reads everything", self._read_all)
        await self._measure("a broker dies", self._die)
        await self._measure("... and is back", self._come_back)
        await self._measure("... and is in sync again", self._catch_up)
        await self._measure("a clean stop", self._stop_cleanly)
        await self._measure("... and is back", self._come_back)
        await self._measure("... and is in sync again", self._catch_up)
        await self._measure("preferred leaders lead again", self._rebalance)
        if self.new:
            await self._measure(f"a topic of {self.new:,} partitions", self._create)
        await self._measure("the controller dies", self._take_over, of_next=True)
        await self.follower.stop()
        for store in (self.follower.store, *self.others.values()):
            await store.close()

    async def _register(self, number: BrokerId, broker: BrokerImage) -> None:
        store = self.others[number] = await self._session()
        await store.create(znodes.broker(number), znodes.encode_broker(broker, 0), ephemeral=True)

    async def _until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0.001)

    async def _settle(self) -> None:
        """Wait until the controller has made all changes, and the following broker has read them."""
        await asyncio.sleep(0)
        await self.controller.loader.settled()
        await self.controller.controller.partitions.settled()
        await self.controller.loader.settled()
        await self.follower.loader.settled()

    async def _measure(
        self, what: str, step: Callable[[], Awaitable[None]], *, of_next: bool = False
    ) -> None:
        acting = self.follower if of_next else self.controller
        before, followed = acting.store.count.copy(), self.follower.store.count.copy()
        cpu, wall = time.process_time(), time.perf_counter()
        await step()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        acted, heard = acting.store.count - before, self.follower.store.count - followed
        # Every broker hears of each change and reads it; an ensemble's servers share the brokers.
        share = self.brokers / _SERVERS
        seconds = acted.writes / _WRITES + share * (heard.events / _EVENTS + heard.reads / _READS)
        print(
            f"| {what} | {acted.writes:,} | {acted.written_bytes / 1e6:.1f} | {heard.reads:,} "
            f"| {heard.read_bytes / 1e6:.1f} | {heard.events:,} | {cpu:.1f} | {wall:.1f} "
            f"| {self.brokers * heard.reads:,} | {self.brokers * heard.read_bytes / 1e6:,.0f} "
            f"| {seconds:.1f} |",
            flush=True,
        )

    async def _populate(self) -> None:
        """Write all partitions into the store directly. The controller would create one topic at a time."""
        random = Random(2)
        brokers = [_broker(number) for number in range(1, self.brokers + 1)]
        writer = await self._session()
        for first in range(0, self.partitions, _TOPIC):
            count = min(_TOPIC, self.partitions - first)
            replicas = place_replicas(brokers, count, _REPLICAS, random)
            name = f"topic-{first // _TOPIC}"
            states = tuple(PartitionState(each, each, each[0]) for each in replicas)
            topic = TopicImage(name, random.randbytes(16), states)
            operations: list[Operation] = [
                Create(znodes.topic(name), znodes.encode_topic(znodes.assignment_of(topic))),
                Create(znodes.partitions(name)),
            ]
            for number, state in enumerate(states):
                operations.append(Create(znodes.partition(name, number)))
                data = znodes.encode_partition_state(state, 1)
                operations.append(Create(znodes.partition_state(name, number), data))
            for batch in batches(operations):
                await writer.multi(batch)
            await self.follower.loader.settled()
            await self.controller.loader.settled()
        await writer.close()
        for member in (self.controller, self.follower):
            await self._until(lambda: self._known_to(member) == self.partitions)  # noqa: B023
        await self._settle()

    def _known_to(self, member: Member) -> int:
        topics = member.image.topics.values()
        return sum(state.leader != NO_BROKER for topic in topics for state in topic.partitions)

    async def _read_all(self) -> None:
        """Read all metadata as a starting broker does. The reads count as those of the following broker."""
        store = await self._session()
        loader = MetadataLoader(store)
        await loader.start()
        self.follower.store.count.reads += store.count.reads
        self.follower.store.count.read_bytes += store.count.read_bytes
        await loader.stop()
        await store.close()

    @property
    def _victim(self) -> BrokerId:
        """Return a broker that is only simulated: brokers 1 and 2 are measured."""
        return max(self.brokers // 2 + 1, 3)

    def _leads(self, broker: BrokerId) -> bool:
        image = self.controller.image
        return any(state.leader == broker for topic in image.topics.values() for state in topic.partitions)

    def _is_in_sync(self, broker: BrokerId) -> bool:
        image = self.controller.image
        return any(broker in state.isr for topic in image.topics.values() for state in topic.partitions)

    async def _die(self) -> None:
        await self.others.pop(self._victim).close()
        await self._until(lambda: self._victim not in self.controller.image.brokers)
        while self._is_in_sync(self._victim):
            await self._settle()
        assert not self._leads(self._victim)

    async def _come_back(self) -> None:
        if (store := self.others.pop(self._victim, None)) is not None:
            await store.close()
            await self._until(lambda: self._victim not in self.controller.image.brokers)
        await self._register(self._victim, _broker(self._victim))
        await self._until(lambda: self._victim in self.controller.image.brokers)
        await self._until(lambda: self._victim in self.controller.image.admitted)
        await self._settle()

    async def _catch_up(self) -> None:
        """Send the request of each leader that adds the returned replica to the ISRs."""
        image, back = self.controller.image, self._victim
        by_leader: dict[BrokerId, list[IsrProposal]] = {}
        for topic in image.topics.values():
            for number, state in enumerate(topic.partitions):
                if back in state.replicas and back not in state.isr and state.leader != NO_BROKER:
                    epochs = [(each, image.brokers[each].epoch) for each in (*state.isr, back)]
                    by_leader.setdefault(state.leader, []).append(
                        IsrProposal(topic.id, number, state.leader_epoch, state.partition_epoch, epochs)
                    )
        for leader, proposals in sorted(by_leader.items()):
            epoch = image.brokers[leader].epoch
            for answer in await self.controller.controller.partitions.alter(leader, epoch, proposals):
                assert not isinstance(answer, KafkaError), answer
        await self._settle()

    async def _stop_cleanly(self) -> None:
        store = self.others[self._victim]
        leaving = _broker(self._victim)._replace(state=BrokerState.SHUTTING_DOWN)
        await store.set(znodes.broker(self._victim), znodes.encode_broker(leaving, 0))
        known = self.controller.loader
        await self._until(lambda: known.image.brokers[self._victim].state is BrokerState.SHUTTING_DOWN)
        await self._settle()
        while self._leads(self._victim):
            await self._settle()

    async def _rebalance(self) -> None:
        wanted = [
            TopicPartition(topic.name, number)
            for topic in self.controller.image.topics.values()
            for number, state in enumerate(topic.partitions)
            if state.leader != state.replicas[0]
        ]
        await self.controller.controller.elections.elect(ElectionType.PREFERRED, wanted)
        await self._settle()

    async def _create(self) -> None:
        made = await self.controller.controller.topics.create([NewTopic("large", self.new, _REPLICAS)])
        assert not isinstance(made["large"], KafkaError)
        await self._settle()

    async def _take_over(self) -> None:
        with _taking_over():
            await self._hand_over()

    async def _hand_over(self) -> None:
        await self.controller.stop()
        await self.controller.store.close()
        await self._until(lambda: self.follower.controller.active)
        self.controller = self.follower
        while self._is_in_sync(1):
            await self._settle()
        assert not self._leads(1)


class _Told(logging.Handler):
    """Prints the times that the controller logs about its start. They do not include
    the waits of this program.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if "taken over" in (message := record.getMessage()):
            print(f"({message})", file=sys.stderr, flush=True)


@contextmanager
def _taking_over() -> Iterator[None]:
    logger, told = logging.getLogger("barnabas"), _Told()
    before = logger.level
    logger.addHandler(told)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(told)
        logger.setLevel(before)


@contextmanager
def _store(is_real: bool, folder: Path) -> Iterator[str | None]:
    """Run a ZooKeeper while the context lasts, and yield its address; yield None for the store in memory."""
    if not is_real:
        yield None
        return
    server = ZooKeeperServer(folder / "zookeeper").start()
    try:
        yield server.address
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.large_cluster", description=__doc__)
    parser.add_argument("--brokers", type=int, default=100, help="3 or more")
    parser.add_argument("--partitions", type=int, default=200_000)
    parser.add_argument("--new", type=int, default=10_000, help="of the topic created last; 0: none is")
    parser.add_argument("--zookeeper", action="store_true", help="on a real one, from PySpark's jars")
    options = parser.parse_args()
    if options.brokers < _REPLICAS:
        parser.error(f"--brokers {options.brokers}: partitions have {_REPLICAS} replicas, give 3 or more")
    print(f"{options.brokers} brokers, {options.partitions:,} partitions of {_REPLICAS} replicas\n")
    print(
        "| what | writes | MB | each broker reads | MB | events | CPU s, two brokers | s here "
        "| all brokers read | MB | ZooKeeper s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as folder, _store(options.zookeeper, Path(folder)) as address:
        asyncio.run(Cluster(options.brokers, options.partitions, options.new, address).run())
    print(f"\n{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB of memory for all of it")


if __name__ == "__main__":
    main()
