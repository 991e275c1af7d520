"""Starts and stops of brokers: the resources that they use, and those that they leave behind."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.kafka.protocol.messages.metadata import MetadataRequest


@pytest.fixture
def config(tmp_path):
    def make(**settings):
        return BrokerConfig(
            **{
                "listeners": ("PLAINTEXT://127.0.0.1:0",),
                "log_dirs": (str(tmp_path / "data"),),
                **settings,
            }
        )

    return make


def test_a_broker_starts_again_on_what_it_left(config, begun):
    for _ in range(3):
        with BrokerServer(config()) as broker:
            assert broker.bootstrap_servers.startswith("127.0.0.1:")
        assert not begun.alive()


def test_a_broker_that_was_stopped_may_be_stopped_again(config):
    broker = BrokerServer(config()).start()
    broker.stop()
    broker.stop()


def test_a_taken_port_is_named_and_nothing_is_left_claimed(config):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*in use"):
            BrokerServer(config(listeners=(f"PLAINTEXT://127.0.0.1:{port}",))).start()
    with BrokerServer(config()):
        pass


@pytest.mark.parametrize("store", ["embedded", "memory"])
def test_a_second_broker_on_the_same_data_is_told_so_and_the_first_goes_on(config, connect, store):
    with BrokerServer(config(metadata_store=store)) as first:
        with pytest.raises(BarnabasError, match="in use"):
            BrokerServer(config(metadata_store=store)).start()
        assert connect(first)(MetadataRequest(topics=[])).brokers
    with BrokerServer(config(metadata_store=store, log_dirs=(config().log_dirs[0] + "-2",))):
        pass


def test_data_of_another_broker_is_refused(config):
    with BrokerServer(config(node_id=1)):
        pass
    with pytest.raises(ConfigError, match=r"node\.id=1, this broker has node\.id=2"):
        BrokerServer(config(node_id=2)).start()


def test_clients_are_told_the_listener_they_came_by(config, connect):
    listeners = ("INSIDE://127.0.0.1:0", "OUTSIDE://127.0.0.1:0")
    advertised = ("OUTSIDE://example.org:4711",)
    protocols = "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"
    settings = config(
        listeners=listeners, advertised_listeners=advertised, listener_security_protocol_map=protocols
    )
    with BrokerServer(settings) as broker:
        (told,) = connect(broker)(MetadataRequest(topics=[])).brokers
        assert f"{told.host}:{told.port}" == broker.bootstrap_servers
        outside = broker.bound[1]
        (told,) = connect(f"127.0.0.1:{outside.port}")(MetadataRequest(topics=[])).brokers
        assert (told.host, told.port) == ("example.org", 4711)


def test_waiting_requests_do_not_hold_up_a_stop(config, connect, make_topic, fetch_request):
    broker = BrokerServer(config()).start()
    wire = connect(broker)
    topic = make_topic(by=wire)
    wire.send(fetch_request(topic, {0: 0}, max_wait_ms=60_000))
    broker.stop()
    assert wire.is_closed()


def test_new_data_is_for_the_brokers_user_alone(tmp_path, connect, make_topic, produce, batch):
    paths = [tmp_path / "a", tmp_path / "b"]
    before = os.umask(0)
    try:
        settings = {"log_dirs": tuple(map(str, paths)), "listeners": ("PLAINTEXT://127.0.0.1:0",)}
        with BrokerServer(BrokerConfig(**settings)) as broker:
            wire = connect(broker.bootstrap_servers)
            topic = make_topic(2, by=wire)
            for partition in (0, 1):
                assert produce(topic, batch(b"v"), partition=partition, by=wire).error_code == 0
        made = [*paths, *(found for path in paths for found in path.rglob("*"))]
    finally:
        os.umask(before)
    modes = {str(path): stat.S_IMODE(path.stat().st_mode) for path in made}
    expected = {str(path): 0o700 if path.is_dir() else 0o600 for path in made}
    assert modes == expected
