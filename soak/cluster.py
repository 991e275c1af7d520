"""A real cluster under test: broker processes and ZooKeeper servers, each on its own host.

The hosts are network namespaces, so the soak can cut any two of them off from each other. The clients run on
the machine itself. A method that begins a fault returns at once, so faults can overlap (`victims`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from random import Random

from barnabas.base.errors import BarnabasError
from barnabas.broker.config.broker import replicated_settings
from barnabas.broker.metadata.zookeeper.server import Member, ZooKeeperServer
from barnabas.client.errors import ClientError
from barnabas.client.moves import Moves
from barnabas.testing.process_broker import ProcessBroker
from barnabas.testing.running_broker import BrokerSettings
from soak.disk import LimitedDisk, unmount
from soak.namespaces import HERE, Network
from soak.observer import Observer
from soak.plan import RECYCLED, TOPICS
from soak.victims import Broker, Server, Undo

CLIENTS = HERE
#: the hosts of the ZooKeeper servers
SERVERS = (101, 102, 103)
#: in place of the soak's: three replicas, and faults that are noticed within the time that a soak has
SETTINGS = {
    **replicated_settings(3),
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "5000",
    "leader.imbalance.check.interval.seconds": "20",
    # a replica that is away for longer keeps values whose tombstones are gone, as with Apache Kafka
    "log.cleaner.delete.retention.ms": "120000",
}
_PORT, _ZOOKEEPER_PORT = 9092, 2181
#: bytes of each broker's disk, and what each minute of the soak adds
_DISK, _DISK_PER_MINUTE = 384 * 1024 * 1024, 16 * 1024 * 1024
#: seconds that a move may take to be begun, and all brokers to start
_PATIENCE, _START_SECONDS = 5.0, 180.0


class Cluster:
    """Brokers 1 to `count`, with their data in `directory`, for a soak of `minutes`.

    Raises:
        NoNetworkError, NoDiskError: this system or user cannot create the hosts or mount the disks.
    """

    def __init__(
        self, directory: Path, count: int, settings: Iterable[str], seed: int, minutes: float
    ) -> None:
        self.ids = tuple(range(1, count + 1))
        self._directory = directory
        self._settings = broker_settings(settings)
        self._random = Random(f"{seed} cluster")
        self._disk_size = _DISK + round(minutes) * _DISK_PER_MINUTE
        self._disks: dict[int, LimitedDisk] = {}
        self._network = Network((*self.ids, *SERVERS))
        self._brokers = {broker: Broker(broker, partial(self._node, broker)) for broker in self.ids}
        hosts = {number: self._network.address(server) for number, server in enumerate(SERVERS, 1)}
        self._servers = {
            server: Server(
                ZooKeeperServer(
                    directory / f"zookeeper-{number}",
                    port=_ZOOKEEPER_PORT,
                    member=Member(number, hosts, self._network.launcher(server)),
                )
            )
            for number, server in enumerate(SERVERS, 1)
        }
        self.observer = Observer(self.bootstrap)
        #: milliseconds by which any broker's clock was ahead, at most
        self.max_ahead_ms = 0

    # -- its life

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self._network.address(broker)}:{_PORT}" for broker in self.ids)

    @property
    def outputs(self) -> list[Path]:
        return [self._directory / f"broker-{broker}" / "data.log" for broker in self.ids]

    @property
    def deaths(self) -> list[str]:
        """Brokers that ended by themselves or did not stop when asked, each with its last line of output."""
        return [death for broker in self._brokers.values() for death in broker.deaths]

    @property
    def failed_starts(self) -> list[str]:
        """Starts that failed during faults, which is allowed."""
        return [failure for broker in self._brokers.values() for failure in broker.failed_starts]

    def start(self) -> None:
        """Start the ZooKeeper servers and the brokers, and wait until every broker serves."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for broker in self.ids:
            folder = self._directory / f"broker-{broker}" / "data"
            unmount(folder)
            self._disks[broker] = LimitedDisk(folder, self._disk_size)
        for server in self._servers.values():
            server.tend()
        for server in self._servers.values():
            server.server.wait_ready()
        self.await_ready()
        self.observer.start()

    def tend(self) -> None:
        """Start each process that should run and does not, as a supervisor does."""
        for victim in (*self._servers.values(), *self._brokers.values()):
            victim.tend()

    def await_ready(self) -> None:
        """Start each broker that does not run. Wait until all brokers serve and have executed their commands.

        A broker that does not start is added to `deaths`.
        """
        deadline = time.monotonic() + _START_SECONDS
        failures = len(self.failed_starts)
        while not all(broker.is_ready for broker in self._brokers.values()):
            self.tend()
            if time.monotonic() > deadline or len(self.failed_starts) > failures + len(self.ids):
                late = [broker for broker in self._brokers.values() if not broker.is_ready]
                for broker in late:
                    broker.deaths.append(
                        f"broker {broker.broker_id} does not start: {broker.failed_starts[-1:]}"
                    )
                return
            time.sleep(0.2)
        for broker in self._brokers.values():
            broker.await_commands()

    def restart_all(self) -> None:
        """Kill all brokers at once and start them again."""
        for let_up in [broker.kill() for broker in self._brokers.values()]:
            let_up()
        self.await_ready()

    def close(self) -> None:
        """Remove all processes, hosts and mounted disks."""
        self.observer.stop()
        for broker in self._brokers.values():
            broker.close()
        for server in self._servers.values():
            server.server.kill()
        self._network.close()
        for disk in self._disks.values():
            disk.close()

    # -- what may be done to it: each begins a fault, and returns what ends it

    def kill(self, whom: Sequence[int]) -> Undo:
        return _all([self._victim(host).kill() for host in whom])

    def pause(self, whom: Sequence[int]) -> Undo:
        return _all([self._victim(host).pause() for host in whom])

    def restart(self, whom: Sequence[int]) -> Undo:
        """Stop brokers cleanly and start them again."""
        for broker in whom:
            self._brokers[broker].restart()
        return _nothing

    def expire(self, whom: Sequence[int]) -> Undo:
        """End the ZooKeeper sessions of brokers."""
        for broker in whom:
            self._brokers[broker].command(ProcessBroker.expire_session)
        return _nothing

    def fill(self, whom: Sequence[int], left: int) -> Undo:
        for broker in whom:
            self._disks[broker].fill(left)
        return _all([self._disks[broker].free for broker in whom])

    def set_clock(self, whom: Sequence[int], ahead_ms: int) -> Undo:
        """Set the wall clocks of brokers ahead or back, in milliseconds. A broker that restarts has the right
        time.
        """
        self.max_ahead_ms = max(self.max_ahead_ms, ahead_ms)
        self._set_clocks(whom, ahead_ms)
        return lambda: self._set_clocks(whom, 0)

    def cut(self, whom: Sequence[int], others: Sequence[int], *, one_way: bool = False) -> Undo:
        """Drop all packets from `whom` to `others`, and unless `one_way` those in the other direction."""
        ways = [(a, b) for a in whom for b in others if a != b]
        ways += [] if one_way else [(b, a) for a, b in ways]
        self._network.cut(ways)
        return lambda: self._network.heal(ways)

    def move(self) -> None:
        """Reassign some replicas, or elect preferred leaders."""
        self.observer.have_done(self._move)

    def zookeeper_leader(self) -> int:
        """Return the host of the ZooKeeper server that leads, or a random one."""
        leaders = [host for host, server in self._servers.items() if server.is_leader()]
        return leaders[0] if leaders else self._random.choice(SERVERS)

    def await_whole(self, seconds: float) -> str:
        """Wait until all partitions have a leader and all replicas are in sync. Return some that are not, or
        "".
        """
        return await_whole(self.bootstrap, seconds)

    # -- inside

    def _move(self) -> None:
        moves = Moves(self.bootstrap, timeout=_PATIENCE)
        try:
            if self._random.random() < 0.3:
                moves.elect(None)
                return
            partitions = sorted(moves.replicas_of([topic for topic in TOPICS if topic != RECYCLED]))
            targets = {}
            for partition in self._random.sample(partitions, min(3, len(partitions))):
                brokers = self._random.sample(self.ids, len(self.ids))
                targets[partition] = brokers[: self._random.choice((2, 3, 3))]
            moves.reassign(targets)
        except (BarnabasError, ClientError, OSError):
            pass  # as faults have it

    def _victim(self, host: int) -> Broker | Server:
        return self._servers[host] if host in self._servers else self._brokers[host]

    def _set_clocks(self, whom: Sequence[int], ahead_ms: int) -> None:
        for broker in whom:
            self._brokers[broker].command(lambda node: node.set_clock(ahead_ms))

    def _node(self, broker: int) -> ProcessBroker:
        address = f"PLAINTEXT://{self._network.address(broker)}:{_PORT}"
        settings = {
            **self._settings,
            "node.id": str(broker),
            "listeners": address,
            "advertised.listeners": address,
            "log.dirs": str(self._directory / f"broker-{broker}" / "data"),
            "zookeeper.connect": ",".join(server.server.address for server in self._servers.values()),
        }
        return ProcessBroker(BrokerSettings(broker, settings, {}), self._network.launcher(broker))


def broker_settings(given: Iterable[str]) -> dict[str, str]:
    """Return the settings of each broker: `given`, as ``name=value``, replaced by those of a cluster."""
    return dict(setting.split("=", 1) for setting in given) | SETTINGS


def _all(undoes: Sequence[Undo]) -> Callable[[], object]:
    return lambda: [undo() for undo in undoes]


def _nothing() -> None:
    """Do nothing: this fault needs no end."""


def await_whole(bootstrap: str, seconds: float) -> str:
    """Wait until all partitions have a leader and all replicas are in sync.

    Return some that are not, or "".
    """
    deadline = time.monotonic() + seconds
    while (behind := _behind(bootstrap)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return behind


def _behind(bootstrap: str) -> str:
    try:
        holders = Moves(bootstrap, timeout=_PATIENCE).replicas_of()
    except (BarnabasError, OSError) as error:
        return str(error)
    behind = [
        f"{place} (leader {each.leader}, replicas {each.replicas}, in sync {each.isr})"
        for place, each in sorted(holders.items())
        if each.leader is None or set(each.isr) != set(each.replicas)
    ]
    return ", ".join(behind[:5])
