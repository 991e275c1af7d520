"""Security settings reach every client of a job, over TLS with certificates on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.spark.certificates import PASSWORD, Certificates
from tests.spark.secure_proxy import secured

from barnabas.spark import lookup
from barnabas.spark.batch_reader import TopicReader
from barnabas.spark.exactly_once import WriteId, write_once
from barnabas.spark.lookup import BrokerUnreachableError, OffsetLookup
from barnabas.spark.options import ReadOptions, WriteOptions
from barnabas.spark.stream_reader import TopicStreamReader
from barnabas.spark.writer import write_batches
from barnabas.testing import SecureBroker

Options = dict[str, str]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Options]:
    """Start a broker that advertises only its TLS port. Return the options of a job that may use it."""
    folder = tmp_path_factory.mktemp("tls")
    certificates = Certificates(folder)
    with secured(folder / "data", certificates.server_context(asks_client=True)) as proxy:
        yield {
            "kafka.bootstrap.servers": proxy.address,
            "kafka.security.protocol": "SSL",
            "kafka.ssl.ca.location": str(certificates.authority),
            "kafka.ssl.certificate.location": str(certificates.client),
            "kafka.ssl.key.location": str(certificates.client_key),
            "kafka.ssl.key.password": PASSWORD,
            "kafka.log_level": "0",
        }


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"value": values})])


def values(batches: Iterator[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_a_job_writes_and_reads_over_tls(secure: Options) -> None:
    write_batches(WriteOptions.parse({**secure, "topic": "t"}, streaming=False), rows("a", "b"))
    once = WriteOptions.parse({**secure, "topic": "t", "barnabas.delivery": "exactly-once"}, streaming=True)
    for _ in range(2):
        write_once(once, WriteId("sink", 0, 0), rows("c"))

    wanted = {**secure, "subscribe": "t", "startingOffsets": "earliest"}
    batch = TopicReader(ReadOptions.parse(wanted, streaming=False))
    assert [value for task in batch.partitions() for value in values(batch.read(task))] == [b"a", b"b", b"c"]

    stream = TopicStreamReader(
        ReadOptions.parse({**wanted, "kafka.group.id": "g", "commitOffsets": "true"}, streaming=True)
    )
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    assert "id" in end["t"], "the lookup came in too"
    (task,) = stream.partitions(start, end)
    assert values(stream.read(task)) == [b"a", b"b", b"c"]
    stream.commit(end)
    stream.stop()


def test_one_who_may_not_come_in_is_told_why(secure: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_TIMEOUT_S", 0.5)
    stranger = {name: value for name, value in secure.items() if "ca.location" not in name}
    with closing(OffsetLookup(ReadOptions.parse({**stranger, "subscribe": "t"}, streaming=False))) as asking:
        with pytest.raises(BrokerUnreachableError, match="certificate") as caught:
            asking.partitions()
        told = str(caught.value)
    assert "\n" not in told


def test_a_job_gets_in_by_a_file_alone() -> None:
    with SecureBroker() as broker:
        broker.create_topic("t", 1)
        broker.grant("alice", "READ", "WRITE", topic="t")
        broker.grant("alice", "IDEMPOTENT_WRITE")
        options = {"barnabas.config": str(broker.properties("alice"))}
        write_batches(WriteOptions.parse({**options, "topic": "t"}, streaming=False), rows("a", "b"))
        reader = TopicReader(ReadOptions.parse({**options, "subscribe": "t"}, streaming=False))
        assert [value for task in reader.partitions() for value in values(reader.read(task))] == [b"a", b"b"]
