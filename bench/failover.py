"""Measures a broker failure in a cluster of many partitions: three real brokers on a real ZooKeeper.

    python -m bench.failover [--partitions 10000]

Topics have ten partitions with three replicas and one record each. The benchmark requests the metadata of all
topics from a broker that stays, again and again. The responses show the leaders, and whether all replicas are
in sync. With 10,000 partitions a response takes some tenths of a second to decode, which limits the
precision.

Apache Kafka is not measured. On two cores there is no room for its three nodes with 10,000 partitions of
three replicas, beside the clients.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer

from barnabas.client.moves import Moves
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from bench.cluster import BROKERS, REST_SECONDS, SESSION_SECONDS, BarnabasCluster
from bench.connection import Connection
from bench.scale import IDLE_SECONDS, TOPIC_PARTITIONS, TOPICS_A_REQUEST, create_topics

#: seconds after which a step is given up
_PATIENCE = 120.0
_VICTIM = BROKERS


class Failover:
    """The measurement of one cluster, from its start to the return of a broker that was killed."""

    def __init__(self, cluster: BarnabasCluster, partitions: int) -> None:
        self._cluster = cluster
        self._victim = cluster.members[_VICTIM - 1]
        self._partitions = partitions

    def run(self) -> None:
        """Measure all steps, and print each result."""
        self._step("all topics are created", self._create)
        self._step("... and all replicas in sync", lambda: self._until(_is_whole))
        self._write()
        time.sleep(REST_SECONDS)
        for number, member in enumerate(self._cluster.members, 1):
            print(f"broker {number}: {member.usage().rss / 1e6:.0f} MB", flush=True)
        self._idle()
        self._step("a broker is stopped cleanly", self._victim.stop)
        self._victim.start()
        print(f"clean start of a broker: {self._victim.startup_seconds:.1f} s", flush=True)
        self._step("... and all replicas are in sync again", lambda: self._until(_is_whole))
        self._give_leaders_back()
        self._victim.kill()
        led = sum(leader == _VICTIM for leader, _ in self._states())
        self._step(
            f"kill -9 of a broker that leads {led:,}, until others lead (session {SESSION_SECONDS} s)",
            lambda: self._until(_is_led_by_others),
        )
        self._victim.start()
        print(f"its start: {self._victim.startup_seconds:.1f} s", flush=True)
        self._step("... and all replicas are in sync again", lambda: self._until(_is_whole))

    def _step(self, what: str, step: Callable[[], object]) -> None:
        began = time.monotonic()
        step()
        print(f"{what}: {time.monotonic() - began:.1f} s", flush=True)

    def _create(self) -> None:
        topics = [f"failover-{number}" for number in range(self._partitions // TOPIC_PARTITIONS)]
        with Connection(self._cluster.bootstrap.split(",")[0]) as connection:
            for start in range(0, len(topics), TOPICS_A_REQUEST):
                create_topics(connection, topics[start : start + TOPICS_A_REQUEST], replicas=BROKERS)
        self._topics = topics

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        for topic in self._topics:
            for partition in range(TOPIC_PARTITIONS):
                producer.produce(topic, bytes(100), partition=partition)
            producer.poll(0)
        if left := producer.flush(_PATIENCE):
            raise SystemExit(f"{left:,} records were not acknowledged within {_PATIENCE:g} s")

    def _give_leaders_back(self) -> None:
        Moves(self._cluster.bootstrap, timeout=_PATIENCE).elect(None)
        self._until(_is_whole)

    def _idle(self) -> None:
        """Print the CPU time and memory of the brokers while no client sends a request."""
        before = [member.usage().cpu_seconds for member in self._cluster.members]
        time.sleep(IDLE_SECONDS)
        after = [member.usage().cpu_seconds for member in self._cluster.members]
        shares = ", ".join(f"{100 * (b - a) / IDLE_SECONDS:.1f}" for a, b in zip(before, after, strict=True))
        print(f"idle: {shares} % of a core", flush=True)

    def _states(self) -> list[tuple[int, bool]]:
        """Return, for each partition, its leader and whether all its replicas are in sync."""
        with Connection(self._cluster.members[0].bootstrap) as connection:
            response = connection.ask(MetadataRequest(topics=None), MetadataResponse)
        return [
            (partition.leader_id, len(partition.isr_nodes) == BROKERS)
            for topic in response.topics
            if not topic.is_internal
            for partition in topic.partitions
        ]

    def _until(self, holds: Callable[[int, bool], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            states = self._states()
            left = sum(not holds(*state) for state in states)
            if states and not left:
                return
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"not within {_PATIENCE:g} s: {left:,} of {len(states):,} partitions are left"
                )
            time.sleep(0.05)


def _is_whole(leader: int, is_in_sync: bool) -> bool:
    return leader >= 0 and is_in_sync


def _is_led_by_others(leader: int, _is_in_sync: bool) -> bool:
    return leader >= 0 and leader != _VICTIM


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000, help="a multiple of 10")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        cluster = BarnabasCluster(Path(folder))
        try:
            cluster.start()
            Failover(cluster, options.partitions).run()
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
