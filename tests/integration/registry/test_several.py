"""Several registries on one topic, and registries that restart."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.registry.conftest import A, B, record
from tests.ports import held_port

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.registry.log import SchemasLog
from barnabas.registry.server import RegistryServer, RegistrySettings, claim
from barnabas.testing import BarnabasBroker


def eventually(ask, expected, seconds=60.0):
    deadline = time.monotonic() + seconds
    while (found := ask()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def records_in(broker, topic):
    settings = {"group.id": "none", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = 0
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found += 1
    consumer.close()
    return found


def test_a_restarted_registry_knows_all_it_knew(make_registry):
    first = make_registry()
    for number in range(20):
        first.register(f"s{number % 3}", record({"name": f"f{number}", "type": "int", "default": 0}))
    first.register("gone", '"int"')
    first("DELETE", "/subjects/gone")
    first("DELETE", "/subjects/gone?permanent=true")
    first("DELETE", "/subjects/s1/versions/1")
    first("PUT", "/config/s0", {"compatibility": "FULL"})
    first("PUT", "/config", {"normalize": True})
    first("PUT", "/mode/s2", {"mode": "READONLY"})
    asked = ("/subjects?deleted=true", "/schemas?deleted=true", "/config", "/config/s0", "/mode/s2")
    before = [first("GET", path).body for path in asked]
    first.server.stop()
    second = make_registry(first.topic)
    assert [second("GET", path).body for path in asked] == before
    assert second.register("s0", '"string"') == 409
    assert second.register("new", '"string"') == 22, "not the id that was deleted"


def test_a_registry_that_has_stopped_keeps_no_connection_to_a_broker(make_registry, monkeypatch):
    admins = []
    construct = SchemasLog.__init__

    def noted(log, *arguments):
        construct(log, *arguments)
        admins.append(log._admin)

    monkeypatch.setattr(SchemasLog, "__init__", noted)
    registry = make_registry()
    registry.register("s", record(A))
    assert [len(admin._brokers._pool._idle) for admin in admins] == [1]
    registry.server.stop()
    assert [len(admin._brokers._pool._idle) for admin in admins] == [0]


def test_registries_tell_each_other_what_is_registered(make_registry):
    one = make_registry()
    other = make_registry(one.topic)
    assert one.register("s", record(A)) == 1
    assert other.register("s", record(A, B)) == 2
    assert one.register("s", record(A)) == 1
    assert one.register("t", '"int"') == 3
    eventually(lambda: other("GET", "/subjects").body, ["s", "t"])


def test_no_id_and_no_version_is_handed_out_twice(make_registry):
    registries = [make_registry()]
    registries += [make_registry(registries[0].topic) for _ in range(2)]
    registries[0]("PUT", "/config", {"compatibility": "NONE"})

    def register(number):
        text = record({"name": f"f{number}", "type": "int"})
        answer = registries[number % 3](
            "POST", f"/subjects/s{number % 2}/versions", {"schema": json.dumps(text)}
        )
        assert answer.status == 200, answer.body
        return f"s{number % 2}", answer.body["version"], answer.body["id"], json.dumps(text)

    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(register, range(30)))
    assert len({(subject, version) for subject, version, _, _ in done}) == 30
    assert sorted(id_ for _, _, id_, _ in done) == list(range(1, 31))
    deadline = time.monotonic() + 60
    while (
        len(registries[0]("GET", "/schemas").body) < 30
    ):  # it may not have read yet what another has written
        assert time.monotonic() < deadline
        time.sleep(0.05)
    expected = sorted(registries[0]("GET", "/schemas").body, key=lambda v: v["id"])
    assert {(v["subject"], v["version"], v["id"]) for v in expected} == {found[:3] for found in done}
    for registry in registries[1:]:
        eventually(lambda r=registry: sorted(r("GET", "/schemas").body, key=lambda v: v["id"]), expected)


def test_one_schema_registered_everywhere_at_once_gets_one_id(make_registry):
    registries = [make_registry()]
    registries += [make_registry(registries[0].topic) for _ in range(2)]
    with ThreadPoolExecutor(6) as pool:
        ids = list(pool.map(lambda n: registries[n % 3].register("s", record(A)), range(12)))
    assert set(ids) == {1}


def test_what_an_aborted_write_left_is_not_read(make_registry):
    registry = make_registry()
    assert registry.register("s", '"int"') == 1
    settings = registry.server._settings
    # Another registry that dies with its transaction open: it has taken the right to write, and written.
    other = Producer(
        {
            "bootstrap.servers": settings.bootstrap_servers,
            "transactional.id": f"schema-registry-{registry.topic}",
            "log_level": 0,
        }
    )
    other.init_transactions(60)
    other.begin_transaction()
    key = b'{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}'
    value = b'{"subject":"s","version":2,"id":2,"schema":"\\"long\\"","deleted":false}'
    other.produce(registry.topic, partition=0, key=key, value=value)
    other.flush(60)
    assert registry("GET", "/subjects/s/versions").body == [1]
    assert registry.register("t", '"string"') == 2
    assert registry("GET", "/subjects/s/versions").body == [1]
    with pytest.raises(Exception, match=r"fenced|newer"):
        other.commit_transaction(60)


def test_records_that_nobody_understands_are_left_out(make_registry, barnabas_broker, caplog):
    registry = make_registry()
    registry.register("s", '"int"')
    for key, value in [
        (b"no json", b"{}"),
        (b'{"keytype":"SCHEMA","subject":"x","version":1,"magic":1}', b'{"id":"?"}'),
        (b'{"keytype":"MODE","subject":null,"magic":0}', b'{"mode":"NEWER"}'),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"NEWER"}'),
        (b'{"keytype":"NEWER","magic":9}', b"{}"),
    ]:
        with barnabas_broker.producer() as producer:
            producer.send(registry.topic, value, key=key)
    registry.server.stop()
    again = make_registry(registry.topic)
    assert again("GET", "/subjects").body == ["s"]
    assert again.register("s", '"long"') == 2
    assert caplog.text.count("skipped") == 10  # by both registries
    assert "NEWER" in caplog.text


def test_confluents_records_are_understood(make_registry, barnabas_broker):
    """The records have the order of fields of Confluent's registry, and fields that only it has."""
    topic = make_registry().topic
    with barnabas_broker.producer() as producer:
        for key, value in [
            (b'{"keytype":"NOOP","magic":0}', None),
            (
                b'{"keytype":"SCHEMA","subject":"c","version":1,"magic":1}',
                b'{"subject":"c","version":1,"id":10,"md5Bytes":"x","schema":"\\"int\\"","deleted":false,"ts":1}',
            ),
            (
                b'{"keytype":"SCHEMA","subject":"c","version":2,"magic":1}',
                b'{"subject":"c","version":2,"id":11,"schemaType":"JSON","schema":"{}","deleted":true}',
            ),
            (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"alias":null,"compatibilityLevel":"FULL"}'),
            (b'{"keytype":"MODE","subject":"c","magic":0}', b'{"mode":"READONLY"}'),
            (
                b'{"keytype":"SCHEMA","subject":"d","version":1,"magic":1}',
                b'{"subject":"d","version":1,"id":12,"schema":"\\"long\\"","deleted":false}',
            ),
            (b'{"keytype":"DELETE_SUBJECT","subject":"d","magic":0}', b'{"subject":"d","version":1}'),
            (b'{"keytype":"CLEAR_SUBJECT","subject":"d","magic":0}', b'{"subject":"d"}'),
        ]:
            producer.send(topic, value, key=key)
    registry = make_registry(topic)
    assert registry("GET", "/subjects?deleted=true").body == ["c"]
    assert registry("GET", "/subjects/c/versions").body == [1]
    assert registry("GET", "/config").body == {"compatibilityLevel": "FULL"}
    assert registry("GET", "/mode/c").body == {"mode": "READONLY"}
    assert registry.register("other", '"int"') == 10
    assert registry.register("other2", '"bytes"') == 13


def test_a_registry_started_before_its_broker_waits_and_says_so(caplog):
    caplog.set_level(logging.WARNING)
    with held_port() as held:
        port = held.getsockname()[1]
        server = RegistryServer(RegistrySettings(f"127.0.0.1:{port}"), claim("127.0.0.1:0")).start()
        said = threading.Event()
        deadline = time.monotonic() + 60
        while not said.wait(0.02) and "; the registry waits" not in caplog.text:
            assert time.monotonic() < deadline
        with BarnabasBroker(port=port) as broker:
            server.wait_until_ready()
            assert broker.admin().topics(internal=True).count("_schemas") == 1
            server.stop()


def test_a_registry_that_waits_can_be_stopped():
    with held_port() as held:
        port = held.getsockname()[1]
        server = RegistryServer(RegistrySettings(f"127.0.0.1:{port}"), claim("127.0.0.1:0")).start()
        server.stop()


def test_a_registry_outlives_its_broker(make_registry):
    with BarnabasBroker() as broker:
        registry = make_registry("_schemas", broker)
        assert registry.register("s", '"int"') == 1
        broker.restart()
        assert registry.register("s", '"long"') == 2
        assert registry("GET", "/subjects/s/versions").body == [1, 2]
        registry.server.stop()


def test_a_topic_that_would_lose_schemas_is_refused(make_registry, barnabas_broker):
    name = "unfit-schemas"
    barnabas_broker.create_topic(name, configs={"cleanup.policy": "delete"})
    with pytest.raises(BarnabasError, match=r"cleanup\.policy=delete of topic unfit-schemas"):
        make_registry(name)
    name = "scattered-schemas"
    barnabas_broker.create_topic(name, 3, configs={"cleanup.policy": "compact"})
    with pytest.raises(BarnabasError, match="has 3 partitions"):
        make_registry(name)


def test_an_address_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"cannot listen on {where}"):
            claim(where)
    with pytest.raises(ConfigError, match="write HOST:PORT"):
        claim("here")


def test_compaction_changes_nothing_that_a_registry_knows(make_registry):
    settings = {
        "log.cleaner.backoff.ms": "20",
        "log.segment.delete.delay.ms": "0",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.segment.bytes": "2000",
        "log.cleaner.delete.retention.ms": "0",
        "log.flush.interval.messages": "1",
    }
    with BarnabasBroker(settings) as broker:
        first = make_registry("_schemas", broker)
        for number in range(40):
            subject = f"s{number % 4}"
            first("PUT", f"/config/{subject}", {"compatibility": "NONE" if number % 3 else "FULL"})
            first("PUT", "/mode", {"mode": "READWRITE"})
            assert first.register(subject, record({"name": f"f{number}", "type": "int", "default": 0})) < 100
        highest = first.register("gone", '"int"')
        for permanent in ("", "?permanent=true"):
            first("DELETE", f"/subjects/s1{permanent}")
            first("DELETE", f"/subjects/gone{permanent}")
        asked = ("/subjects?deleted=true", "/schemas?deleted=true", "/config/s0", "/mode")
        before = [first("GET", path).body for path in asked]
        written = 3 * 40 + 4
        eventually(lambda: records_in(broker, "_schemas") < written // 2, True)
        second = make_registry("_schemas", broker)
        assert [second("GET", path).body for path in asked] == before
        assert second.register("new", '"string"') == highest + 1
        first.server.stop()
        second.server.stop()
