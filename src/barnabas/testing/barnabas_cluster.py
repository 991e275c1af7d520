"""A cluster of several brokers for tests, with the faults that a cluster must survive."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from barnabas.base.settings_file import as_texts
from barnabas.base.system.orphans import environment_that_ends
from barnabas.base.system.sockets import claim_alone, has_local_sockets
from barnabas.broker.config.broker import replicated_settings
from barnabas.client.brokers import ask_once
from barnabas.client.errors import ClientError
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.schema import Request
from barnabas.testing.broker import TEST_SETTINGS
from barnabas.testing.cluster import TemporaryCluster
from barnabas.testing.relays import Relays
from barnabas.testing.running_broker import BrokerSettings, RunningBroker
from barnabas.testing.shared_store import SharedServer
from barnabas.testing.thread_broker import ThreadBroker

if TYPE_CHECKING:
    from barnabas.broker.metadata.server.thread import StoreServerThread
    from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer

__all__ = ["BarnabasCluster"]

MODES = ("thread", "process")
STORES = ("memory", "embedded", "zookeeper")

#: the stores that processes can share, the default first
_OF_PROCESSES = ("embedded", "zookeeper")
#: Defaults that suit a test rather than a server: one broker's, and short timeouts to notice failures.
_TEST_SETTINGS = {**TEST_SETTINGS, "zookeeper.session.timeout.ms": "2000"}
#: seconds between two looks at the cluster
_LOOK = 0.02
#: seconds in which a broker must answer
_ANSWER = 2.0
#: seconds; ZooKeeper ends sessions at multiples of it
_TICK = 0.2
HOST = "127.0.0.1"


class BarnabasCluster(TemporaryCluster):
    """A cluster whose brokers, numbered from 1, run while the `with` block runs.

    Args:
        brokers: the number of brokers.
        settings: settings of every broker by Kafka's names. By default a topic has three replicas (fewer if
            there are fewer brokers), and acks=all requires two of them in sync.
        racks: ``broker.rack`` of each broker, in order, with the `later` brokers; empty for no racks.
        later: the number of further brokers, which `restart` starts when the cluster grows.
        data: a directory for all data, which is kept. By default a temporary directory, removed at the end.
        mode: "thread" runs brokers in this process (fastest, and a debugger reaches them); "process" runs
            each in a process of its own. By default, the mode that fits `store`; without `store`, "thread".
        store: "memory" in mode "thread": a metadata store in this process. In mode "process", "embedded" or
            "zookeeper". "embedded", the default, is the store of `barnabas start --brokers`, which this
            process serves. "zookeeper" is a real ZooKeeper, which needs Java and PySpark. Without Unix
            sockets, the default is "zookeeper".

    Raises:
        ValueError: an argument is not allowed, or `mode` and `store` do not fit.

    `bootstrap_servers` has the addresses of all brokers, for any client. `partition` cuts only connections
    between brokers: clients reach every broker that runs.
    """

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, Any] | None = None,
        *,
        racks: Sequence[str] = (),
        later: int = 0,
        data: str | Path | None = None,
        mode: str | None = None,
        store: str | None = None,
    ) -> None:
        mode = mode or ("process" if store in _OF_PROCESSES else "thread")
        store = store or ("memory" if mode == "thread" else _OF_PROCESSES[not has_local_sockets()])
        if brokers < 1:
            raise ValueError(f"brokers={brokers} is not allowed: name at least 1")
        if mode not in MODES:
            raise ValueError(f"mode={mode!r} is not known: choose from {', '.join(MODES)}")
        if store not in STORES:
            raise ValueError(f"store={store!r} is not known: choose from {', '.join(STORES)}")
        if (mode == "process") != (store in _OF_PROCESSES):
            raise ValueError(
                f"store={store!r} does not go with mode={mode!r}: brokers in threads share a store in "
                "memory, processes the embedded store or a ZooKeeper"
            )
        if racks and len(racks) != brokers + later:
            raise ValueError(
                f"racks={list(racks)} is not allowed: name one for each of {brokers + later} brokers"
            )
        super().__init__()
        self._ids = tuple(range(1, brokers + later + 1))
        self._first = self._ids[:brokers]
        self._racks = dict(zip(self._ids, racks, strict=False))
        self._settings = {**_TEST_SETTINGS, **replicated_settings(brokers), **as_texts(settings or {})}
        #: "thread" or "process"
        self.mode = mode
        self._store = store
        self._data = Path(data) if data is not None else None
        self._exits = ExitStack()
        self._ports: dict[int, int] = {}
        self._routes: dict[int, dict[int, int]] = {}
        self._relays = Relays()
        self._nodes: dict[int, RunningBroker] = {}
        self._paused: set[int] = set()
        self._begin: Callable[[BrokerSettings], Any]

    # -- its life

    @property
    def brokers(self) -> Sequence[int]:
        """Return the ids of all brokers, running or not."""
        return self._ids

    @property
    def running(self) -> Sequence[int]:
        """Return the ids of the brokers that run and are not paused."""
        return [broker for broker in self._ids if broker in self._nodes and broker not in self._paused]

    @property
    def bootstrap_servers(self) -> str:
        """Return ``host:port,host:port,...`` of all brokers, which any Kafka client accepts.

        Raises RuntimeError before `start`.
        """
        if not self._bootstrap_servers:
            raise RuntimeError("the cluster has not been started: use it in a with block, or call start()")
        return self._bootstrap_servers

    @property
    def data(self) -> Path:
        """Return the folder that has the data of broker 1 in ``broker-1``, and so on."""
        if self._data is None:
            self._data = Path(tempfile.mkdtemp(prefix="barnabas-test-"))
            self._exits.callback(shutil.rmtree, self._data, ignore_errors=True)
        return self._data

    def address_of(self, broker: int) -> str:
        """Return ``host:port`` of one broker, running or not. Call `start` first.

        Raises ValueError if the cluster has no broker with this id.
        """
        self._check_id(broker)
        return f"{HOST}:{self._ports[broker]}"

    def start(self) -> Self:
        """Start the store and the brokers (not the `later` ones), and wait until all of them serve.

        Do nothing if the cluster has been started.
        """
        if self._bootstrap_servers:
            return self
        folder = self.data
        self._begin = self._exits.enter_context(self._beginner(folder))
        ports = self._exits.enter_context(_reserved_ports(len(self._ids)))
        self._ports = dict(zip(self._ids, ports, strict=True))
        self._exits.callback(self._relays.stop)
        through = self._relays.start(self._ports)
        self._routes = {a: {self._ports[b]: through[a, b] for b in self._ids if b != a} for a in self._ids}
        self._bootstrap_servers = ",".join(map(self.address_of, self._ids))
        self._exits.callback(self._stop_all)
        self._begin_nodes(self._first)
        self._wait("the brokers know each other", 60.0, self._all_know_all)
        return self

    def close(self) -> None:
        """Stop the brokers and the store, and remove temporary data."""
        self._exits.close()

    # -- faults

    def stop(self, broker: int) -> None:
        """Stop a broker cleanly. The broker first hands over the partitions that it leads."""
        self._take(broker).stop()

    def kill(self, broker: int) -> None:
        """Kill a broker, as SIGKILL does.

        The other brokers notice when its session ends, after ``zookeeper.session.timeout.ms`` (here 2 s).
        """
        self._take(broker).kill()

    def pause(self, broker: int) -> None:
        """Suspend a broker, with its connections open, as SIGSTOP does. Its session may expire meanwhile."""
        node = self._node(broker)
        if broker not in self._paused:
            self._paused.add(broker)
            node.pause()

    def resume(self, broker: int) -> None:
        """Let a broker continue after `pause`."""
        node = self._node(broker)
        if broker in self._paused:
            node.resume()
            self._paused.discard(broker)

    def restart(self, broker: int) -> None:
        """Start a broker on its port, with its data, and wait until it serves.

        If the broker runs, stop it cleanly first. `broker` can also be the id of a `later` broker, which has
        not run before.
        """
        self._check_id(broker)
        if broker in self._nodes:
            self.stop(broker)
        self._begin_nodes([broker])

    def partition(self, a: int | Iterable[int], b: int | Iterable[int], *, one_way: bool = False) -> None:
        """Cut the network between two brokers, or two groups of brokers.

        Their connections to clients and to the metadata store stay. TCP retransmits: data that was sent
        meanwhile arrives after `heal`, unless one end has closed the connection.

        Args:
            a: brokers of one side.
            b: brokers of the other side.
            one_way: hold back only what `a` sends to `b`.
        """
        ways = [(x, y) for x in self._some(a) for y in self._some(b) if x != y]
        self._relays.cut(ways if one_way else [*ways, *((y, x) for x, y in ways)])

    def heal(self) -> None:
        """Undo all calls of `partition`."""
        self._relays.heal()

    def expire_session(self, broker: int) -> None:
        """Make the metadata store expire a broker's session now."""
        self._node(broker).expire_session()

    def fill_disk(self, broker: int) -> None:
        """Fill a broker's disk: every write fails (ENOSPC) until `free_disk`."""
        self._node(broker).fill_disk(True)

    def free_disk(self, broker: int) -> None:
        """Undo `fill_disk`. A broker that has taken its log directory offline must be restarted."""
        self._node(broker).fill_disk(False)

    # -- what the cluster says

    def leader_of(self, topic: str, partition: int = 0, *, timeout: float = 60.0) -> int:
        """Wait until the leader of a partition runs and is not paused; return its broker id.

        Raises:
            TimeoutError: there is no such leader within `timeout` seconds.
        """
        found: list[int] = []

        def look() -> bool:
            states = self._partitions([topic])
            leader = states.get((topic, partition), (-1, (), ()))[0]
            found[:] = [leader]
            return leader in self.running

        self._wait(f"{topic}-{partition} has a leader that runs", timeout, look)
        return found[0]

    def controller(self, *, timeout: float = 60.0) -> int:
        """Wait until the controller is a broker that runs and is not paused; return its broker id.

        Raises:
            TimeoutError: there is no such controller within `timeout` seconds.
        """
        found: list[int] = []

        def look() -> bool:
            found[:] = [self._ask(DescribeClusterRequest()).controller_id]
            return found[0] in self.running

        self._wait("a broker that runs is the controller", timeout, look)
        return found[0]

    def wait_in_sync(self, *topics: str, timeout: float = 60.0) -> None:
        """Wait until each partition has a leader that runs, and all its replicas in its ISR.

        Every broker that runs must report this.

        Args:
            topics: the topics to wait for. If one does not exist yet, this also waits for it. By default, all
                existing topics, also internal ones.
            timeout: in seconds.

        Raises:
            TimeoutError: some partitions are not in sync within `timeout` seconds; the text names some of
                them.
        """
        behind: list[str] = []

        def look() -> bool:
            for broker in self.running:  # a broker that has just come back may not have the newest metadata
                states = self._partitions(topics or None, broker)
                behind[:] = [
                    f"{topic}-{index} (leader {leader}, replicas {sorted(replicas)}, in sync {sorted(isr)})"
                    for (topic, index), (leader, replicas, isr) in sorted(states.items())
                    if leader not in self.running or set(replicas) != set(isr)
                ]
                if behind or not {topic for topic, _ in states} >= set(topics):
                    return False
            return True

        self._wait("all replicas are in sync", timeout, look, lambda: ", ".join(behind[:5]))

    # -- inside

    def _beginner(self, folder: Path) -> Any:
        if self.mode == "process":
            return _Processes(folder, self._store)
        return _Threads(int(self._settings["zookeeper.session.timeout.ms"]) / 1000)

    def _begin_nodes(self, brokers: Iterable[int]) -> None:
        begun = {broker: self._begin(self._settings_of(broker)) for broker in brokers}
        failures = []
        for broker, node in begun.items():
            try:
                node.wait_ready()
                self._nodes[broker] = node
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _settings_of(self, broker: int) -> BrokerSettings:
        settings = {
            **self._settings,
            "node.id": str(broker),
            "listeners": f"PLAINTEXT://{self.address_of(broker)}",
            "log.dirs": str(self.data / f"broker-{broker}"),
        }
        if broker in self._racks:
            settings["broker.rack"] = self._racks[broker]
        return BrokerSettings(broker, settings, self._routes[broker])

    def _stop_all(self) -> None:
        """Heal the network, resume and stop all brokers; then raise the first error."""
        self._relays.heal()
        failures = []
        for broker in list(self._nodes):
            try:
                self._take(broker).stop()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _take(self, broker: int) -> RunningBroker:
        node = self._node(broker)
        del self._nodes[broker]
        if broker in self._paused:
            node.resume()
            self._paused.discard(broker)
        return node

    def _node(self, broker: int) -> RunningBroker:
        self._check_id(broker)
        if broker not in self._nodes:
            raise RuntimeError(f"broker {broker} does not run: restart({broker}) starts it")
        return self._nodes[broker]

    def _some(self, brokers: int | Iterable[int]) -> list[int]:
        some = [brokers] if isinstance(brokers, int) else list(brokers)
        for broker in some:
            self._check_id(broker)
        return some

    def _check_id(self, broker: int) -> None:
        if broker not in self._ids:
            raise ValueError(f"there is no broker {broker}: choose from {', '.join(map(str, self._ids))}")

    def _all_know_all(self) -> bool:
        return all(
            {known.node_id for known in self._metadata([], broker).brokers} >= set(self._first)
            for broker in self._first
        )

    def _partitions(
        self, topics: Sequence[str] | None, broker: int | None = None
    ) -> dict[tuple[str, int], tuple[int, Sequence[int], Sequence[int]]]:
        """Return leader, replicas and ISR by partition, from the metadata of one broker.

        If `topics` is None, return the partitions of all topics.
        """
        return {
            (topic.name, partition.partition_index): (
                partition.leader_id,
                partition.replica_nodes,
                partition.isr_nodes,
            )
            for topic in self._metadata(topics, broker).topics
            for partition in topic.partitions
        }

    def _metadata(self, topics: Sequence[str] | None, broker: int | None = None) -> Any:
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        return self._ask(request, broker)

    def _ask(self, request: Request, broker: int | None = None) -> Any:
        """Return the response of `broker` to `request`. If `broker` is None, ask the running brokers in turn.

        The result is the first response. Raises ClientError if `broker`, or every running broker, does not
        answer. Raises RuntimeError if `broker` is None and no broker runs.
        """
        failure: ClientError | None = None
        for asked in self.running if broker is None else [broker]:
            try:
                return ask_once(f"{HOST}:{self._ports[asked]}", 2 * _ANSWER, request)
            except ClientError as error:
                failure = error
        raise failure or RuntimeError("no broker runs")

    def _wait(
        self, what: str, timeout: float, holds: Callable[[], bool], detail: Callable[[], str] = lambda: ""
    ) -> None:
        deadline = time.monotonic() + timeout
        while True:
            failure = ""
            try:
                if holds():
                    return
            except ClientError as error:
                failure = str(error)
            if time.monotonic() >= deadline:
                more = detail() or failure
                more = f": {more}" if more else ""
                raise TimeoutError(f"not within {timeout:g} s: {what}; brokers {self.running} run{more}")
            time.sleep(_LOOK)


class _Processes:
    """A context manager that runs a metadata store. Its value is a function that starts brokers in processes.

    The function is called with the `BrokerSettings` of a broker. It returns the broker before it serves.

    `store` is "embedded" or "zookeeper". The store's data are in a folder within `folder`.
    """

    def __init__(self, folder: Path, store: str) -> None:
        self._server: StoreServerThread | ZooKeeperServer
        if store == "embedded":
            from barnabas.broker.metadata.server.thread import StoreServerThread

            self._server = StoreServerThread([folder / "metadata"], tick=_TICK)
        else:
            from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer

            ends = environment_that_ends()
            self._server = ZooKeeperServer(folder / "zookeeper", tick=_TICK, fsync=False, environment=ends)

    def __enter__(self) -> Callable[[BrokerSettings], Any]:
        from barnabas.testing.process_broker import ProcessBroker  # imports kazoo, which takes a while

        address = self._server.start().address

        def begin(node: BrokerSettings) -> ProcessBroker:
            settings = {**node.settings, "zookeeper.connect": address}
            return ProcessBroker(BrokerSettings(node.broker_id, settings, node.routes)).begin()

        return begin

    def __exit__(self, *_: object) -> None:
        self._server.stop()


class _Threads:
    """A context manager that runs a metadata store, and returns a function that starts a broker in a thread.

    The function receives the `BrokerSettings` of the broker, and returns the broker at once. To wait until
    the broker serves, call the broker's `wait_ready`. A broker's session in the metadata store expires
    `session_timeout` seconds after the broker's last heartbeat.
    """

    def __init__(self, session_timeout: float) -> None:
        self._server = SharedServer(session_timeout)

    def __enter__(self) -> Callable[[BrokerSettings], ThreadBroker]:
        self._server.__enter__()
        return lambda settings: ThreadBroker(settings, self._server).begin()

    def __exit__(self, *error: object) -> None:
        self._server.__exit__(*error)


@contextmanager
def _reserved_ports(count: int) -> Iterator[list[int]]:
    """Yield free ports that stay reserved while their broker is down. Only Linux can reserve them.

    Linux never assigns a port to which a socket is bound. While that socket does not listen, a broker can
    listen on the port.
    """
    with ExitStack() as exits:
        held = [exits.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            claim_alone(each)
            each.bind((HOST, 0))
        ports = [each.getsockname()[1] for each in held]
        if sys.platform != "linux":
            exits.close()
        yield ports
