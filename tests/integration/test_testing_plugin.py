"""The fixtures for users: with each client, in both modes, without leftovers at their ends."""

import asyncio
import subprocess
import sys

import pytest

from barnabas.base.errors import ConfigError, KafkaError
from barnabas.testing import BarnabasBroker

pytest_plugins = ["pytester"]


def test_confluent_kafka_works_in_a_test(barnabas_broker, barnabas_topic):
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": barnabas_broker.bootstrap_servers})
    producer.produce(barnabas_topic, b"hello", key=b"k")
    assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": barnabas_broker.bootstrap_servers,
            "group.id": barnabas_topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([barnabas_topic])
    message = consumer.poll(60)
    assert (message.key(), message.value()) == (b"k", b"hello")
    consumer.close()


def test_aiokafka_works_in_a_test(barnabas_broker, barnabas_topic):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def there_and_back():
        servers = barnabas_broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait(barnabas_topic, b"hello", key=b"k")
        async with AIOKafkaConsumer(
            barnabas_topic, bootstrap_servers=servers, group_id=barnabas_topic, auto_offset_reset="earliest"
        ) as consumer:
            return await asyncio.wait_for(consumer.getone(), 60)

    record = asyncio.run(there_and_back())
    assert (record.key, record.value) == (b"k", b"hello")


def test_kafka_python_works_in_a_test(barnabas_broker, barnabas_topic):
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=barnabas_broker.bootstrap_servers)
    producer.send(barnabas_topic, b"hello", key=b"k").get(timeout=60)
    producer.close()
    consumer = KafkaConsumer(
        barnabas_topic,
        bootstrap_servers=barnabas_broker.bootstrap_servers,
        group_id=barnabas_topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    record = next(consumer)
    assert (record.key, record.value) == (b"k", b"hello")
    consumer.close()


def test_the_helpers_send_and_read(barnabas_broker, barnabas_topic):
    barnabas_broker.produce(barnabas_topic, {"id": 1}, "text", b"\x00")
    first, second, third = barnabas_broker.consume(barnabas_topic, 3)
    assert (first.json(), second.text, third.value) == ({"id": 1}, "text", b"\x00")


def test_each_test_has_its_own_topic(barnabas_broker, barnabas_topic):
    assert barnabas_broker.admin().offsets([(barnabas_topic, 0)], "latest") == {(barnabas_topic, 0): 0}


def test_a_fresh_broker_is_empty_and_keeps_its_data_over_a_restart(barnabas_fresh_broker, barnabas_broker):
    broker = barnabas_fresh_broker
    assert broker.bootstrap_servers != barnabas_broker.bootstrap_servers
    assert broker.admin().topics() == []
    broker.create_topic("kept")
    broker.produce("kept", "a", "b")
    address = broker.bootstrap_servers
    broker.restart()
    assert broker.bootstrap_servers == address
    assert [record.text for record in broker.consume("kept", 2)] == ["a", "b"]


def test_a_broker_process_can_be_killed_and_loses_nothing():
    with BarnabasBroker(mode="process") as broker:
        broker.create_topic("kept")
        broker.produce("kept", *(str(number) for number in range(100)))
        broker.kill()
        broker.start()
        assert [record.text for record in broker.consume("kept", 100)] == [str(n) for n in range(100)]
    assert not broker.data.is_dir() or not any(broker.data.iterdir())


def test_settings_reach_the_broker(tmp_path):
    with BarnabasBroker({"num.partitions": "3"}, data=tmp_path / "data") as broker:
        broker.admin().create_topic("t")
        assert len(broker.admin().describe_topics(["t"])[0].partitions) == 3
    assert (tmp_path / "data" / "t-2").is_dir()  # data of the user's own is kept


def test_settings_can_be_numbers_bools_and_lists():
    policy = ["compact", "delete"]
    settings = {"num.partitions": 3, "delete.topic.enable": False, "log.cleanup.policy": policy}
    with BarnabasBroker(settings) as broker:
        broker.admin().create_topic("t")
        assert len(broker.admin().describe_topics(["t"])[0].partitions) == 3
        with pytest.raises(KafkaError, match="TOPIC_DELETION_DISABLED"):
            broker.admin().delete_topic("t")


def test_a_setting_of_another_type_is_named():
    with pytest.raises(ConfigError, match=r"num\.partitions: write a string, a number"):
        BarnabasBroker({"num.partitions": None})


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_setting_that_is_not_known_is_said(mode):
    with (
        pytest.raises(Exception, match=r"no\.such\.setting"),
        BarnabasBroker({"no.such.setting": "1"}, mode=mode),
    ):
        pass


def test_the_thread_ends_with_the_broker(begun):
    with BarnabasBroker() as broker:
        assert begun.alive()
    assert not begun.alive()
    with pytest.raises(RuntimeError, match="has not been started"):
        BarnabasBroker().bootstrap_servers  # noqa: B018
    assert not broker._runner


def test_a_broker_in_a_thread_cannot_be_killed():
    with BarnabasBroker(mode="thread") as broker, pytest.raises(RuntimeError, match='mode="process"'):
        broker.kill()


def test_the_plugin_loads_next_to_nothing():
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import pytest, sys; before = set(sys.modules)\n"
            "import barnabas.testing.plugin; print(*sorted(set(sys.modules) - before))",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert set(loaded) <= {"barnabas", "barnabas.testing", "barnabas.testing.plugin"}


def test_a_users_project_gets_the_fixtures(pytester):
    pytester.makeini("[pytest]\nbarnabas_mode = process")
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def barnabas_settings():
            return {"num.partitions": "2"}
        """
    )
    pytester.makepyfile(
        """
        def test_five_lines(barnabas_broker):
            barnabas_broker.admin().create_topic("orders")
            barnabas_broker.produce("orders", {"id": 1})
            assert barnabas_broker.consume("orders", 1)[0].json() == {"id": 1}
            assert len(barnabas_broker.admin().describe_topics(["orders"])[0].partitions) == 2
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_same_tests_run_against_another_cluster(pytester, barnabas_broker):
    pytester.makepyfile(
        f"""
        def test_elsewhere(barnabas_broker, barnabas_topic):
            assert barnabas_broker.bootstrap_servers == "{barnabas_broker.bootstrap_servers}"
            barnabas_broker.produce(barnabas_topic, "x")
        """
    )
    result = pytester.runpytest_subprocess("--barnabas-servers", barnabas_broker.bootstrap_servers)
    result.assert_outcomes(passed=1)


def test_the_fixtures_are_explained(pytester):
    result = pytester.runpytest_subprocess("--fixtures")
    result.stdout.fnmatch_lines(["barnabas_broker*", "*A Kafka broker shared by all tests of the run*"])


def test_a_cluster_that_cannot_be_reached_is_named_with_the_option_of_pytest(pytester):
    pytester.makepyfile("def test_it(barnabas_broker): pass")
    result = pytester.runpytest_subprocess("--barnabas-servers", "127.0.0.1:1")
    result.assert_outcomes(errors=1)
    said = result.stdout.str()
    assert "no broker answers at 127.0.0.1:1" in said
    assert "or name another with --barnabas-servers HOST:PORT (without it, a broker is started" in said
    assert "--bootstrap-server" not in said


def test_a_run_in_processes_has_its_clusters_in_processes_without_zookeeper(pytester):
    pytester.makeconftest(
        """
        import importlib.util
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *more: None if name == "pyspark" else find(name, *more)
        """
    )
    pytester.makepyfile(
        """
        def test_a_cluster(barnabas_cluster):
            cluster = barnabas_cluster(brokers=1)
            cluster.create_topic("t")
            assert cluster.mode == "process"

        def test_one_in_threads(barnabas_cluster):
            cluster = barnabas_cluster(brokers=1, mode="thread")
            cluster.create_topic("t")
            assert cluster.mode == "thread"
        """
    )
    pytester.runpytest_subprocess("--barnabas-mode", "process").assert_outcomes(passed=2)
