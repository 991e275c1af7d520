"""A real cluster under a soak: broker processes, a real ZooKeeper, and relays between all that talk.

Nobody reaches a broker or the ZooKeeper but through a relay, which can be cut: among brokers one for each
ordered pair, from each broker to the ZooKeeper, and from the clients to each broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from bench.peers import free_port

from barnabas.client.errors import ClientError
from barnabas.client.moves import Moves
from barnabas.config.durability import replicated_settings
from barnabas.errors import BarnabasError
from barnabas.metadata.zookeeper.server import ZooKeeperServer
from barnabas.testing.nodes import NodeSettings
from barnabas.testing.process_node import ProcessNode
from barnabas.testing.relays import Relays
from barnabas.testing.runners import BrokerDied
from soak.disk import LimitedDisk, NoDiskError, unmount

HOST = "127.0.0.1"
#: at one end of relays: the clients, and the ZooKeeper
CLIENTS, ZOOKEEPER = -1, 0
#: beside the soak's: three replicas, and faults that are noticed within the time that a soak has
SETTINGS = {
    **replicated_settings(3),
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "5000",
    "leader.imbalance.check.interval.seconds": "20",
}
#: bytes; a soak of twelve minutes needs less
DISK = 384 * 1024 * 1024
#: seconds that a move may take to be begun
_PATIENCE = 5.0

Undo = Callable[[], object]


class Cluster:
    """Brokers 1 to `count`, with their data in `directory`; started anew they find it.

    `say` is told what cannot be done here.
    """

    def __init__(
        self, directory: Path, count: int, settings: Iterable[str], seed: int, say: Callable[[str], None]
    ) -> None:
        self.ids = tuple(range(1, count + 1))
        self._directory = directory
        self._settings = SETTINGS | dict(setting.split("=", 1) for setting in settings)
        self._random = Random(f"{seed} cluster")
        self._say = say
        self._zookeeper = ZooKeeperServer(directory / "zookeeper", tick=0.5)
        self._relays = Relays()
        self._ports = {broker: free_port() for broker in self.ids}
        self._through: dict[tuple[int, int], int] = {}
        self._nodes: dict[int, ProcessNode] = {}
        self._disks: dict[int, LimitedDisk] = {}
        #: milliseconds by which any broker's clock was ahead, at most
        self.most_ahead_ms = 0
        #: brokers that ended by themselves, or did not start, with their last words
        self.deaths: list[str] = []

    # -- its life

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self._through[CLIENTS, broker]}" for broker in self.ids)

    @property
    def port(self) -> int:
        """At which clients reach the first broker."""
        return self._through[CLIENTS, self.ids[0]]

    @property
    def outputs(self) -> list[Path]:
        return [self._directory / f"broker-{broker}" / "data.log" for broker in self.ids]

    def start(self) -> None:
        """Start all of it and wait until every broker serves."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._zookeeper.start()
        ends = {CLIENTS: free_port(), ZOOKEEPER: self._zookeeper.port, **self._ports}
        self._through = self._relays.start(ends)
        for broker in self.ids:
            self._mount(broker)
        self._begin(self.ids)

    def restart_all(self) -> None:
        """Kill all brokers at once and start them again."""
        for broker in self._present(self.ids):
            self._nodes.pop(broker).kill()
        self._begin(self.ids)

    def revive(self) -> None:
        """Start whatever does not run."""
        self._begin([broker for broker in self.ids if broker not in self._present(self.ids)])

    def close(self) -> None:
        """Leave no process and no mounted disk behind."""
        for node in self._nodes.values():
            with suppress(OSError):
                node.resume()
            node.kill()
        self._nodes.clear()
        self._relays.stop()
        self._zookeeper.kill()
        for disk in self._disks.values():
            disk.close()

    # -- what may be done to it: each begins a fault, and returns what ends it

    def kill(self, whom: Sequence[int]) -> Undo:
        present = self._present(whom)
        for broker in present:
            self._nodes.pop(broker).kill()
        return lambda: self._begin(present)

    def pause(self, whom: Sequence[int]) -> Undo:
        nodes = [self._nodes[broker] for broker in self._present(whom)]
        for node in nodes:
            node.pause()

        def resume() -> None:
            for node in nodes:
                node.resume()

        return resume

    def restart(self, whom: Sequence[int]) -> Undo:
        """Stop some cleanly, one after the other, each started again before the next."""
        for broker in self._present(whom):
            try:
                self._nodes.pop(broker).stop()
            except BrokerDied as error:
                self.deaths.append(str(error)[:300])
            self._begin([broker])
        return _nothing

    def expire(self, whom: Sequence[int]) -> Undo:
        for broker in self._present(whom):
            with suppress(BrokerDied):  # it does not answer in time on a machine as busy as this
                self._nodes[broker].expire_session()
        return _nothing

    def fill(self, whom: Sequence[int], left: int) -> Undo:
        for broker in whom:
            if broker in self._disks:
                self._disks[broker].fill(left)
            else:
                self._nodes[broker].fill_disk(True)
        return lambda: self._free(whom)

    def set_clock(self, whom: Sequence[int], ahead_ms: int) -> Undo:
        """Set wall clocks ahead, or back; a broker that starts anew has the right time."""
        self.most_ahead_ms = max(self.most_ahead_ms, ahead_ms)
        self._set_clocks(whom, ahead_ms)
        return lambda: self._set_clocks(whom, 0)

    def _set_clocks(self, whom: Sequence[int], ahead_ms: int) -> None:
        for broker in self._present(whom):
            with suppress(BrokerDied):  # it does not answer in time on a machine as busy as this
                self._nodes[broker].set_clock(ahead_ms)

    def cut(self, whom: Sequence[int], others: Sequence[int], *, one_way: bool = False) -> Undo:
        ways = [(a, b) for a in whom for b in others if a != b]
        ways += [] if one_way else [(b, a) for a, b in ways]
        self._relays.cut(ways)
        return lambda: self._relays.heal(ways)

    def kill_zookeeper(self) -> Undo:
        self._zookeeper.kill()
        return self._zookeeper.start

    def pause_zookeeper(self) -> Undo:
        self._zookeeper.pause()
        return self._zookeeper.resume

    def move(self) -> str:
        """Move some replicas, or have the preferred replicas lead; what was done, in words."""
        moves = Moves(self.bootstrap, timeout=_PATIENCE)
        try:
            if self._random.random() < 0.3:
                moves.elect(None)
                return "elect preferred leaders"
            places = sorted(moves.holders(list(self._topics())))
            chosen = self._random.sample(places, min(3, len(places)))
            targets = {}
            for place in chosen:
                brokers = list(self.ids)
                self._random.shuffle(brokers)
                targets[place] = brokers[: self._random.choice((2, 3, 3))]
            moves.reassign(targets)
            return "reassign " + ", ".join(f"{place} to {to}" for place, to in targets.items())
        except (BarnabasError, ClientError, OSError) as error:
            return f"nothing could be moved: {error}"

    def await_whole(self, seconds: float) -> str:
        """Wait until all partitions have a leader and their replicas in sync; some that have not in time."""
        deadline = time.monotonic() + seconds
        while (behind := self._behind()) and time.monotonic() < deadline:
            time.sleep(0.5)
        return behind

    def _behind(self) -> str:
        try:
            holders = Moves(self.bootstrap, timeout=_PATIENCE).holders()
        except (BarnabasError, OSError) as error:
            return str(error)
        behind = [
            f"{place} (leader {each.leader}, replicas {each.replicas}, in sync {each.isr})"
            for place, each in sorted(holders.items())
            if each.leader is None or set(each.isr) != set(each.replicas)
        ]
        return ", ".join(behind[:5])

    def controller(self) -> int | None:
        """The controller, if it runs."""
        try:
            found = Moves(self.bootstrap, timeout=_PATIENCE).cluster().controller
        except (BarnabasError, OSError):
            return None
        return found if found in self._nodes else None

    def leader(self, topic: str, partition: int) -> int | None:
        """The leader of a partition, if it runs."""
        try:
            holders = Moves(self.bootstrap, timeout=_PATIENCE).holders([topic])
        except (BarnabasError, OSError):
            return None
        found = [each.leader for place, each in holders.items() if place.partition == partition]
        return found[0] if found and found[0] in self._nodes else None

    # -- inside

    def _topics(self) -> Iterable[str]:
        from soak.plan import RECYCLED, TOPICS

        return (topic for topic in TOPICS if topic != RECYCLED)

    def _mount(self, broker: int) -> None:
        folder = self._directory / f"broker-{broker}" / "data"
        try:
            unmount(folder)
            self._disks[broker] = LimitedDisk(folder, DISK)
        except NoDiskError as reason:
            self._say(f"broker {broker} is told that its disk is full, since none can be mounted: {reason}")

    def _free(self, whom: Sequence[int]) -> None:
        for broker in whom:
            if broker in self._disks:
                self._disks[broker].free()
            else:
                self._nodes[broker].fill_disk(False)

    def _begin(self, whom: Sequence[int]) -> None:
        begun = {broker: ProcessNode(self._node(broker)).begin() for broker in whom}
        for broker, node in begun.items():
            try:
                node.wait_ready()
            except BrokerDied as error:
                self.deaths.append(str(error)[:300])
            else:
                self._nodes[broker] = node

    def _present(self, whom: Sequence[int]) -> list[int]:
        """Those who have not ended by themselves; who has is noted."""
        for broker, node in list(self._nodes.items()):
            if not node.is_alive:
                self.deaths.append(f"broker {broker} ended by itself: {node.last_words[-200:]}")
                del self._nodes[broker]
        return [broker for broker in whom if broker in self._nodes]

    def _node(self, broker: int) -> NodeSettings:
        settings = {
            **self._settings,
            "node.id": str(broker),
            "listeners": f"PLAINTEXT://{HOST}:{self._ports[broker]}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self._through[CLIENTS, broker]}",
            "log.dirs": str(self._directory / f"broker-{broker}" / "data"),
            "zookeeper.connect": f"{HOST}:{self._through[broker, ZOOKEEPER]}",
        }
        routes = {
            self._through[CLIENTS, other]: self._through[broker, other]
            for other in self.ids
            if other != broker
        }
        return NodeSettings(broker, settings, routes)


def _nothing() -> None:
    """There is nothing to end."""
