"""The topics of a soak, and its clients: one for each role and library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

#: small segments, so that logs roll, are recovered and lose their oldest part all the time
_SMALL = {"segment.bytes": "131072"}
#: the protocol of members of share groups
SHARE = "share"
RECYCLED = "recycled"
"""The topic that is deleted and made again all the time."""
JOBS = "jobs"
"""The topic, and the share group, whose members are the workers."""
#: seconds of a lock, and the delivery count limit
LOCK, DELIVERIES = 5, 5
#: how many workers one process runs
_WORKERS_A_PROCESS = 10
TOPICS: dict[str, dict[str, str]] = {
    "events": _SMALL,
    "ledger": _SMALL,
    "brief": {"segment.bytes": "4096", "retention.bytes": "24576", "file.delete.delay.ms": "1000"},
    "latest": {
        "cleanup.policy": "compact",
        "segment.bytes": "16384",
        "file.delete.delay.ms": "1000",
    },
    "aged": {"segment.bytes": "16384", "retention.ms": "15000", "file.delete.delay.ms": "1000"},
    "pruned": {"segment.bytes": "16384", "file.delete.delay.ms": "1000"},
    # many keys in batches of one record, so many that no system call takes all of a cleaned segment's batches
    "keys": {"cleanup.policy": "compact", "segment.bytes": "524288", "segment.ms": "4000"},
    RECYCLED: _SMALL,
    JOBS: _SMALL,
    **{f"copies-{client}": _SMALL for client in ("confluent", "aiokafka", "kafka_python", "java")},
}
PARTITIONS = {
    "events": 4,
    "ledger": 3,
    "brief": 2,
    "latest": 2,
    "aged": 2,
    "pruned": 2,
    "keys": 2,
    RECYCLED: 2,
    JOBS: 3,
} | {topic: 3 for topic in TOPICS if topic.startswith("copies-")}
#: what the broker is given beside its defaults, so that what it does now and then it does often
SETTINGS = {
    "num.partitions": "2",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "log.retention.check.interval.ms": "3000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.flush.start.offset.checkpoint.interval.ms": "2000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.cleaner.delete.retention.ms": "1000",
    "offsets.topic.segment.bytes": "65536",
    "transaction.state.log.segment.bytes": "65536",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK * 1000),
    "group.share.delivery.count.limit": str(DELIVERIES),
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.segment.bytes": "65536",
    "share.coordinator.state.topic.prune.interval.ms": "5000",
    "share.coordinator.snapshot.update.records.per.snapshot": "50",
}


def settings(least_segment: int) -> Iterator[str]:
    """Yield the broker's settings as ``name=value``. No segment is smaller than `least_segment` bytes."""
    for name, value in SETTINGS.items():
        is_size = name.endswith("segment.bytes")
        yield f"{name}={max(least_segment, int(value)) if is_size else value}"


@dataclass(frozen=True)
class Slot:
    """A place for one client. When the client in it has ended, the soak starts another."""

    name: str
    role: str
    client: str
    topics: dict[str, int]
    task: dict[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The consumer group of the client; empty for a member of the share group."""
        return "" if self.role == "work" else str(self.task.get("group", ""))

    @property
    def isolation(self) -> str:
        return str(self.task.get("isolation", "read_committed"))

    @property
    def writes(self) -> bool:
        """Return whether the client creates records by itself. The soak stops such clients first."""
        return self.role in ("produce", "transact", "newcomers", "recycle", "keep")


def _of(*names: str) -> dict[str, int]:
    return {name: PARTITIONS[name] for name in names}


def slots(*, has_java: bool, has_consumer_protocol: bool, workers: int = 0) -> Iterator[Slot]:
    """Yield the clients that this machine and this broker support. `workers` of them share a group."""
    if workers:
        yield Slot("produce-jobs", "produce", "confluent", _of(JOBS), {"pause": 0.01})
    for number, first in enumerate(range(0, workers, _WORKERS_A_PROCESS), 1):
        task = {
            "group": JOBS,
            "protocol": SHARE,
            "workers": min(_WORKERS_A_PROCESS, workers - first),
            "isolation": "read_uncommitted",
        }
        yield Slot(f"work-{number}", "work", "confluent", _of(JOBS), task)
    shrinking = _of("brief", "aged", "pruned")
    values = {"tombstones": ["latest", "keys"]}
    yield Slot(
        "produce-confluent-1", "produce", "confluent", _of("events", "latest"), values | {"pause": 0.02}
    )
    # batches of one record: so the checker knows how many bytes a topic with retention by size has at most
    single = {"batch": 1, "pause": 0.01}
    yield Slot("produce-confluent-2", "produce", "confluent", _of("events") | shrinking, single)
    yield Slot("produce-aiokafka", "produce", "aiokafka", _of("events", "aged", "pruned"), {"pause": 0.02})
    yield Slot("produce-kafka_python", "produce", "kafka_python", _of("events", "latest"), {"pause": 0.03})
    many = {"keys": 3000, "batch": 1, "pause": 0.005}
    yield Slot("produce-keys", "produce", "confluent", _of("keys"), values | many)
    yield Slot("newcomers", "newcomers", "confluent", {})
    yield Slot("recycle", "recycle", "confluent", _of(RECYCLED), {"configs": TOPICS[RECYCLED]})
    yield Slot("produce-recycled", "produce", "confluent", _of(RECYCLED), {"pause": 0.03})
    watched = _of("events", "ledger", "latest", "keys") | shrinking
    yield Slot("keep", "keep", "confluent", watched, {"outputs": _of("pruned"), "pause": 0.2})
    for number in (1, 2):
        name = f"transact-confluent-{number}"
        own = values | {"transactional_id": name, "pause": 0.2}
        yield Slot(name, "transact", "confluent", _of("events", "ledger", "latest", "keys"), own)
    loops = [("confluent", "1"), ("confluent", "2"), ("aiokafka", "1"), ("kafka_python", "1")]
    if has_java:
        loops.append(("java", "1"))
    for client, member in loops:
        name = f"transform-{client}-{member}"
        task = {
            "transactional_id": name,
            "group": f"loop-{client}",
            "outputs": _of(f"copies-{client}"),
            "protocol": "consumer" if client == "java" and has_consumer_protocol else "classic",
        }
        yield Slot(name, "transform", client, _of("ledger"), task)
    copies = [f"copies-{client}" for client in dict(loops)]
    readers = [
        ("committed", "confluent", 2, ["events", "ledger", *copies], {"assignor": "cooperative-sticky"}),
        ("uncommitted", "confluent", 2, ["events", "brief", "latest"], {"isolation": "read_uncommitted"}),
        ("shrinking", "confluent", 2, ["brief", "aged", "pruned"], {}),
        ("values", "confluent", 1, ["latest", "keys"], {}),
        ("recycled", "confluent", 1, [RECYCLED], {}),
        ("aiokafka", "aiokafka", 1, ["events", "ledger"], {}),
        ("kafka_python", "kafka_python", 2, ["events", "ledger"], {}),
    ]
    if has_consumer_protocol:
        readers.append(("new", "confluent", 3, ["events", "ledger"], {"protocol": "consumer"}))
        readers.append(("recycled-new", "confluent", 1, [RECYCLED], {"protocol": "consumer"}))
    for group, client, members, topics, more in readers:
        for number in range(1, members + 1):
            name = f"consume-{group}-{number}"
            yield Slot(name, "consume", client, _of(*topics), {"group": f"read-{group}", **more})
