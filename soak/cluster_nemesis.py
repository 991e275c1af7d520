"""The schedule of faults of a cluster. The seed determines it before the soak; the targets are chosen during
it.

Several sequences (tracks) of faults run at the same time, so faults overlap. The faults of one track do not
overlap. Reassignments, elections and the faults of clients are in addition to the tracks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from soak.cluster import CLIENTS, SERVERS, Cluster
from soak.nemesis import Fault, of_clients
from soak.plan import PARTITIONS, Slot
from soak.victims import Undo

#: the tracks of faults: what a fault of the cluster has for a target
TRACKS = ("cluster, first track", "cluster, second track", "cluster, third track")
MOVES = "moves"
MOVE = "move replicas or leaders of"
#: seconds between two moves, about
_MOVES_GAP = 12.0


class Kind(NamedTuple):
    """A kind of fault: how often and how long it happens, and the function that begins it."""

    weight: int
    #: seconds; drawn evenly from one of the ranges
    lasts: Sequence[tuple[float, float]]
    begin: Callable[[Cluster, Random], Undo]


def _leader(cluster: Cluster, random: Random) -> list[int]:
    topic = random.choice(["events", "ledger", "latest", "__consumer_offsets", "__transaction_state"])
    found = cluster.observer.leader(topic, random.randrange(PARTITIONS.get(topic, 4)))
    return [found or random.choice(cluster.ids)]


def _controller(cluster: Cluster, random: Random) -> list[int]:
    return [cluster.observer.controller or random.choice(cluster.ids)]


def _server(cluster: Cluster, random: Random) -> list[int]:
    return [random.choice(SERVERS)]


def _any(cluster: Cluster, random: Random) -> list[int]:
    return [random.choice(cluster.ids)]


def _two(cluster: Cluster, random: Random) -> list[int]:
    return random.sample(cluster.ids, min(2, len(cluster.ids)))


def _all(cluster: Cluster, random: Random) -> list[int]:
    return list(cluster.ids)


#: shorter than a session, about as long, longer, and longer than clients and transactions wait
_SHORT, _SESSION, _LONG, _MINUTE = (0.0, 3.0), (4.0, 8.0), (8.0, 16.0), (30.0, 70.0)
_USUAL = (_SHORT, _SESSION, _LONG)
KINDS: dict[str, Kind] = {
    "kill a leader": Kind(6, _USUAL, lambda c, r: c.kill(_leader(c, r))),
    "kill any": Kind(3, _USUAL, lambda c, r: c.kill(_any(c, r))),
    "kill the controller": Kind(4, _USUAL, lambda c, r: c.kill(_controller(c, r))),
    "kill two": Kind(3, _USUAL, lambda c, r: c.kill(_two(c, r))),
    "kill all": Kind(2, (_SHORT,), lambda c, r: c.kill(_all(c, r))),
    "pause a leader": Kind(4, _USUAL, lambda c, r: c.pause(_leader(c, r))),
    "pause any": Kind(2, _USUAL, lambda c, r: c.pause(_any(c, r))),
    "pause the controller": Kind(3, _USUAL, lambda c, r: c.pause(_controller(c, r))),
    "pause two": Kind(2, _USUAL, lambda c, r: c.pause(_two(c, r))),
    "restart any": Kind(3, ((0.0, 0.0),), lambda c, r: c.restart(_any(c, r))),
    "restart all": Kind(2, ((0.0, 0.0),), lambda c, r: c.restart(_all(c, r))),
    "end a session": Kind(3, ((0.0, 0.0),), lambda c, r: c.expire(_any(c, r))),
    "end two sessions": Kind(1, ((0.0, 0.0),), lambda c, r: c.expire(_two(c, r))),
    "fill a disk": Kind(4, ((1.0, 10.0),), lambda c, r: c.fill(_any(c, r), _left(r))),
    "fill two disks": Kind(1, ((1.0, 6.0),), lambda c, r: c.fill(_two(c, r), _left(r))),
    "cut off from brokers": Kind(4, _USUAL, lambda c, r: c.cut(_leader(c, r), c.ids)),
    "cut off one way": Kind(4, _USUAL, lambda c, r: c.cut(_leader(c, r), c.ids, one_way=True)),
    "cut off from ZooKeeper": Kind(6, (*_USUAL, _MINUTE), lambda c, r: c.cut(_leader(c, r), SERVERS)),
    "cut the controller off from ZooKeeper": Kind(3, _USUAL, lambda c, r: c.cut(_controller(c, r), SERVERS)),
    "cut off from ZooKeeper one way": Kind(
        2, _USUAL, lambda c, r: c.cut(SERVERS, _controller(c, r), one_way=True)
    ),
    "cut off from a ZooKeeper server": Kind(2, _USUAL, lambda c, r: c.cut(_leader(c, r), _server(c, r))),
    "cut off from clients": Kind(3, _USUAL, lambda c, r: c.cut([CLIENTS], _leader(c, r))),
    "isolate": Kind(3, _USUAL, lambda c, r: c.cut(_leader(c, r), [CLIENTS, *SERVERS, *c.ids])),
    "kill a ZooKeeper server": Kind(3, _USUAL, lambda c, r: c.kill(_server(c, r))),
    "kill the leader of ZooKeeper": Kind(3, _USUAL, lambda c, r: c.kill([c.zookeeper_leader()])),
    "pause the leader of ZooKeeper": Kind(3, _USUAL, lambda c, r: c.pause([c.zookeeper_leader()])),
    "cut the leader of ZooKeeper off from the others": Kind(
        3, _USUAL, lambda c, r: c.cut([c.zookeeper_leader()], SERVERS)
    ),
    "kill two ZooKeeper servers": Kind(2, (_SHORT, _LONG), lambda c, r: c.kill(r.sample(SERVERS, 2))),
    "keep ZooKeeper down": Kind(1, ((20.0, 45.0),), lambda c, r: c.kill(SERVERS)),
    "keep ZooKeeper down for minutes": Kind(1, ((300.0, 310.0),), lambda c, r: c.kill(SERVERS)),
    "set a clock": Kind(2, _USUAL, lambda c, r: c.set_clock(_any(c, r), _ahead(r))),
    "set all clocks": Kind(1, _USUAL, lambda c, r: c.set_clock(_all(c, r), _ahead(r))),
}


def _ahead(random: Random) -> int:
    """Return a random change of a clock in milliseconds, small or up to half an hour, ahead or back."""
    return random.choice((-1, 1)) * random.choice((random.randrange(5_000), random.randrange(30 * 60_000)))


def _left(random: Random) -> int:
    return random.choice((0, random.randrange(10_000), random.randrange(300_000)))


def schedule(
    seed: int, seconds: float, slots: Sequence[Slot], gap: float, words: Sequence[str] = ()
) -> list[Fault]:
    """Return the faults in order of time. All of them end before `seconds`.

    Args:
        gap: the mean pause between two faults of a track, in seconds.
        words: if given, use only faults whose name contains one of these words.
    """
    random = Random(seed)
    faults = of_clients(random, seconds, slots, 2 * gap)
    for track in TRACKS:
        faults += _of_cluster(random, track, seconds, gap, words)
    at = random.uniform(5, 10)
    while at < seconds:
        faults.append(Fault(at, MOVE, MOVES, 0))
        at += random.expovariate(1 / _MOVES_GAP)
    return sorted(faults, key=lambda fault: fault.at)


def kinds_of(seconds: float, words: Sequence[str] = ()) -> dict[str, Kind]:
    """Return the kinds of faults for a soak of this length. Without `words`, no fault may take most of the
    soak.
    """
    longest = seconds if words else max(seconds / 3, _LONG[1])
    wanted = words or ("",)
    return {
        name: kind
        for name, kind in KINDS.items()
        if kind.lasts[-1][1] <= longest and any(word in name for word in wanted)
    }


def _of_cluster(random: Random, track: str, seconds: float, gap: float, words: Sequence[str]) -> list[Fault]:
    faults: list[Fault] = []
    at = random.uniform(3, 6)
    kinds = kinds_of(seconds, words)
    names, weights = list(kinds), [kind.weight for kind in kinds.values()]
    while True:
        kind = random.choices(names, weights)[0]
        lasts = random.uniform(*random.choice(KINDS[kind].lasts))
        if at + lasts > seconds:
            return faults
        faults.append(Fault(at, kind, track, lasts))
        # Now and then again at once: while the cluster elects, or a broker has just come back.
        at += lasts + (random.uniform(0, 2) if random.random() < 0.3 else 2 + random.expovariate(1 / gap))


class ClusterFaults:
    """Executes faults on a cluster; the `Target` of a soak."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = Random(f"{seed} whom")

    def begin(self, fault: Fault) -> Callable[[], object]:
        if fault.target == MOVES:
            self._cluster.move()
            return lambda: None
        return KINDS[fault.kind].begin(self._cluster, self._random)

    def tend(self) -> None:
        self._cluster.tend()
