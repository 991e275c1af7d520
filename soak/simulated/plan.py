"""The clients of a seed's run, and the settings of the brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from barnabas.base.environment.clock import Clock
from soak.plan import SETTINGS, SHARE
from soak.roles.common import Task
from soak.simulated.admins import Keep, Recycle, Tinker
from soak.simulated.brief_members import Brief, BriefWork, Deleter
from soak.simulated.client import Client
from soak.simulated.log_dirs import MoveLogs
from soak.simulated.movers import Move, Unregister
from soak.simulated.readers import Consume, Transform, Watch
from soak.simulated.rude import Rude
from soak.simulated.stage import FOLDERS, LETTERS, MADE_LETTERS, RECYCLED, REPLICAS, Stage, rack_of
from soak.simulated.workers import Work
from soak.simulated.writers import Produce, Transact

_SMALL = {"segment.bytes": "4096", "file.delete.delay.ms": "500"}
TOPICS: dict[str, dict[str, str]] = {
    "events": _SMALL,
    "ledger": _SMALL | {"flush.messages": "7"},
    "copies": _SMALL,
    "aged": _SMALL | {"segment.bytes": "2048", "retention.ms": "12000"},
    "pruned": _SMALL | {"segment.bytes": "2048"},
    "latest": _SMALL
    | {"cleanup.policy": "compact", "segment.bytes": "2048", "min.cleanable.dirty.ratio": "0.05"},
    RECYCLED: _SMALL,
    LETTERS: _SMALL | {"errors.deadletterqueue.group.enable": "true"},
}
PARTITIONS = {
    "events": 3,
    "ledger": 2,
    "copies": 2,
    "aged": 1,
    "pruned": 1,
    "latest": 2,
    RECYCLED: 1,
    LETTERS: 2,
}

#: move partitions between brokers, and logs between folders, while there are faults
MOVER, LOG_MOVER = "move", "move-logs"
#: unregisters brokers that do not run
UNREGISTER = "unregister"
#: the part of the seeds with a client that moves logs between folders
_MOVING_LOGS = 0.25
#: the same of clusters with a client that unregisters brokers
_UNREGISTERING = 0.125
#: groups that their members delete, and one that changes between the protocols; and their parts of the seeds
AGAIN, JOBS_AGAIN, MIXED = "again", "jobs-again", "mixed"
_AGAIN, _MIXED = 0.125, 0.125
#: copies on its own, in no group, and begins again at brokers that are cut off
COPY = "copy"
#: the ``min.insync.replicas`` of all topics in a cluster
LEAST_IN_SYNC = 2
#: seconds of a lock in a share group
LOCK = 2.5
#: seconds until the ensemble takes a silent broker for dead
SESSION_TIMEOUT = 3.0

Make = Callable[[Stage, int, Clock], Client]


@dataclass(frozen=True)
class Slot:
    """A place for one client. When the client in it has ended, the simulation starts another."""

    task: Task
    make: Make

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def group(self) -> str:
        """The consumer group of the client."""
        return "" if self.share_group else self.task.group

    @property
    def share_group(self) -> str:
        return self.task.group if self.task.protocol == SHARE else ""


def settings(broker_id: int, brokers: int, *, fsync: bool) -> dict[str, str]:
    """Return the settings of a broker. Regular work, such as retention, runs much
    more often than by default.
    """
    wanted = SETTINGS | {
        "node.id": str(broker_id),
        "listeners": "PLAINTEXT://:9092",
        "log.dirs": ",".join(FOLDERS),
        "auto.create.topics.enable": "false",
        "barnabas.acks.fsync": "true" if fsync else "false",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "offsets.topic.segment.bytes": "16384",
        "transaction.state.log.segment.bytes": "16384",
        "log.cleaner.backoff.ms": "2000",
        "log.cleaner.dedupe.buffer.size": "262144",
        "group.initial.rebalance.delay.ms": "200",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.share.min.session.timeout.ms": "6000",
        "group.share.session.timeout.ms": "6000",
        "group.share.min.heartbeat.interval.ms": "1000",
        "group.share.heartbeat.interval.ms": "1000",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(round(LOCK * 1000)),
        "errors.deadletterqueue.auto.create.topics.enable": "true",
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.state.topic.segment.bytes": "16384",
        "share.coordinator.state.topic.prune.interval.ms": "2000",
        "share.coordinator.cold.partition.snapshot.interval.ms": "3000",
        "share.coordinator.snapshot.update.records.per.snapshot": "10",
    }
    if brokers == 1:
        return wanted
    in_sync = str(LEAST_IN_SYNC)
    return wanted | {
        "broker.rack": rack_of(broker_id),
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "default.replication.factor": str(REPLICAS),
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": str(REPLICAS),
        "transaction.state.log.replication.factor": str(REPLICAS),
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": str(REPLICAS),
        "share.coordinator.state.topic.min.isr": in_sync,
        "zookeeper.session.timeout.ms": str(round(SESSION_TIMEOUT * 1000)),
        "replica.high.watermark.checkpoint.interval.ms": "2000",
        "replica.lag.time.max.ms": "2500",
        "replica.fetch.wait.max.ms": "300",
        "replica.socket.timeout.ms": "3000",
    }


def slots(seed: int, random: Random, brokers: int, *, has_mover: bool = False) -> Iterator[Slot]:
    """Yield the clients of a run. Each run has some clients of most kinds; with `has_mover`, also a busy
    mover.
    """

    def task(name: str, *topics: str, **more: object) -> Task:
        return Task(
            name=name,
            role="",
            client="simulated",
            bootstrap="",
            history="",
            seed=seed,
            topics={topic: PARTITIONS[topic] for topic in topics},
            **{"keys": 12, "tombstones": ["latest"], "pause": 0.15, **more},  # type: ignore[arg-type]
        )

    def produce(name: str, *topics: str, window: int = 5, **more: object) -> Slot:
        what = task(name, *topics, **more)
        return Slot(what, lambda stage, life, clock: Produce(stage, what, life, clock, window=window))

    def consume(name: str, group: str, *topics: str, **more: object) -> Slot:
        what = task(name, *topics, group=group, **more)
        return Slot(what, lambda stage, life, clock: Consume(stage, what, life))

    def often(likely: float = 0.7) -> bool:
        return random.random() < likely

    yield produce("produce-1", "events", "latest", pause=0.1)
    if often():
        yield produce("produce-2", "events", "aged", "pruned", pause=0.12)
    for number in range(1, random.randint(2, 3)):
        is_v2 = often(0.5)
        what = task(
            f"transact-{number}",
            "events",
            "ledger",
            "latest",
            transactional_id=f"transact-{number}",
            transaction_timeout_ms=random.choice([3000, 10_000]),
            pause=0.3,
        )
        yield Slot(what, _transact(what, is_v2=is_v2))
    if often():
        protocol = random.choice(["classic", "consumer"])
        is_v2 = often(0.5)
        for number in range(1, random.randint(2, 4)):
            name = f"transform-{number}"
            what = task(
                name,
                "ledger",
                transactional_id=name,
                group="loop",
                outputs={"copies": PARTITIONS["copies"]},
                protocol=protocol,
                transaction_timeout_ms=10_000,
                pause=0.2,
            )
            yield Slot(what, _transform(what, is_v2=is_v2))
    readers = ["events", "ledger", "copies"]
    for group, protocol in (("read-classic", "classic"), ("read-new", "consumer")):
        if often():
            isolation = random.choice(["read_committed", "read_uncommitted"])
            topics = readers if often(0.5) else ["events", "latest"]
            for number in range(1, random.randint(2, 4)):
                yield consume(
                    f"{group}-{number}", group, *topics, protocol=protocol, isolation=isolation, pause=0.1
                )
    for isolation in ("read_committed", "read_uncommitted"):
        if often():
            what = task(f"watch-{isolation[5:]}", *random.choice([readers, ["latest", "events"]]))
            what = replace(what, isolation=isolation, pause=0.3)
            yield Slot(what, _plain(Watch, what))
    if often(0.8):
        what = task("keep", "events", "ledger", "pruned", "aged", "latest", pause=0.6)
        what = replace(what, outputs={"pruned": 1})
        yield Slot(what, _plain(Keep, what))
    if often(0.5):
        what = replace(task("recycle", RECYCLED), configs=TOPICS[RECYCLED])
        yield Slot(what, _plain(Recycle, what))
        yield produce("produce-recycled", RECYCLED, window=1, pause=0.25)
        if often():
            protocol = random.choice(["classic", "consumer"])
            yield consume("read-recycled-1", "read-recycled", RECYCLED, protocol=protocol)
    if often(0.4):
        what = replace(task("tinker", "events", "latest", "ledger", pause=1.5), outputs={"events": 3})
        yield Slot(what, _plain(Tinker, what))
    if often(0.5):
        what = task("rude", "events", "ledger", pause=1.0)
        yield Slot(what, _plain(Rude, what))
    for group in ("jobs", "more-jobs"):
        if often(0.5):
            # Only a group with more members than partitions gives a partition to several members.
            topics = random.choice([["events"], ["ledger"], ["latest"], ["ledger", "pruned"]])
            isolation = random.choice(["read_committed", "read_uncommitted"])
            configs = {
                "share.auto.offset.reset": "earliest",
                "share.isolation.level": isolation,
                "share.delivery.count.limit": str(random.choice([2, 3, 5])),
                "errors.deadletterqueue.topic.name": random.choice([LETTERS, LETTERS, MADE_LETTERS, ""]),
                "errors.deadletterqueue.copy.record.enable": random.choice(["true", "false"]),
            }
            for number in range(1, random.randint(3, 6)):
                what = task(f"{group}-{number}", *topics, group=group, isolation=isolation, pause=0.1)
                yield Slot(replace(what, protocol=SHARE, configs=configs), _plain(Work, what))
    if brokers > 1 and often():
        what = task(
            COPY,
            "ledger",
            transactional_id=COPY,
            group=COPY,
            outputs={"copies": PARTITIONS["copies"]},
            protocol="assigned",
            transaction_timeout_ms=10_000,
            pause=0.2,
        )
        yield Slot(what, _transform(what, is_v2=True))
    if brokers > 1 and (often() or has_mover):
        what = task(MOVER, pause=0.5 if has_mover else 1.5)
        yield Slot(what, _plain(Move, what))
    # A source of its own, so that the other seeds stay what they were.
    if Random(f"{seed} {LOG_MOVER}").random() < _MOVING_LOGS:
        what = task(LOG_MOVER, pause=0.7)
        yield Slot(what, _plain(MoveLogs, what))
    if brokers > 1 and Random(f"{seed} {UNREGISTER}").random() < _UNREGISTERING:
        what = task(UNREGISTER, pause=0.4)
        yield Slot(what, _plain(Unregister, what))
    for group, part, count, kind in ((AGAIN, _AGAIN, 2, Deleter), (MIXED, _MIXED, 3, Brief)):
        if Random(f"{seed} {group}").random() < part:
            for number in range(1, count + 1):
                what = task(f"{group}-{number}", "events", "copies", group=group, pause=0.15)
                yield Slot(what, _plain(kind, what))
    if Random(f"{seed} {JOBS_AGAIN}").random() < _AGAIN:
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": "read_uncommitted",
            "share.delivery.count.limit": "5",
            "errors.deadletterqueue.topic.name": "",
        }
        for number in (1, 2):
            what = task(f"{JOBS_AGAIN}-{number}", "ledger", group=JOBS_AGAIN, isolation="read_uncommitted")
            what = replace(what, protocol=SHARE, configs=configs, pause=0.1)
            yield Slot(what, _plain(BriefWork, what))


def _plain(kind: Callable[[Stage, Task, int], Client], task: Task) -> Make:
    return lambda stage, life, clock: kind(stage, task, life)


def _transact(task: Task, *, is_v2: bool) -> Make:
    return lambda stage, life, clock: Transact(stage, task, life, clock, is_v2=is_v2)


def _transform(task: Task, *, is_v2: bool) -> Make:
    return lambda stage, life, clock: Transform(stage, task, life, clock, is_v2=is_v2)
