"""The pytest plugin: a real broker as a fixture, for tests with any Kafka client.

    def test_orders(barnabas_broker, barnabas_topic):
        barnabas_broker.produce(barnabas_topic, {"id": 1})
        assert my_app.read_orders(barnabas_broker.bootstrap_servers, barnabas_topic) == [{"id": 1}]

Fixtures:
    barnabas_broker: one broker for the whole run (each xdist worker has its own).
    barnabas_topic: the name of a new topic with one partition on that broker.
    barnabas_fresh_broker: a broker of the test's own, without topics or groups.
    barnabas_settings: override it (session scope) to give the brokers settings: {"num.partitions": "3"}.

Options: `--barnabas-mode thread|process` (also in the ini file as `barnabas_mode`) runs the brokers in this
process or beside it; `--barnabas-servers HOST:PORT` runs the tests of the shared broker against another
cluster, for example Apache Kafka.

The plugin is loaded in every pytest run where Barnabas is installed, so it imports nothing of it until a
fixture is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import BarnabasBroker
    from barnabas.testing.cluster import Cluster

_MODES = ("thread", "process")
_counter = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("barnabas", "Barnabas, a Kafka broker for tests")
    group.addoption(
        "--barnabas-mode",
        choices=_MODES,
        help="run test brokers in a thread of this process (the default) or in a process of their own",
    )
    group.addoption(
        "--barnabas-servers",
        metavar="HOST:PORT",
        help="let barnabas_broker stand for this running cluster instead of starting a broker",
    )
    parser.addini("barnabas_mode", "the default of --barnabas-mode", default="thread")


@pytest.fixture(scope="session")
def barnabas_settings() -> Mapping[str, str]:
    """Broker settings for the test brokers, by Kafka's names; override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def barnabas_broker(pytestconfig: pytest.Config, barnabas_settings: Mapping[str, str]) -> Iterator[Cluster]:
    """A Kafka broker shared by all tests of the run: `barnabas_broker.bootstrap_servers` is its address."""
    from barnabas.testing.broker import BarnabasBroker

    servers = pytestconfig.getoption("--barnabas-servers")
    if servers:
        from barnabas.testing.cluster import Cluster

        yield Cluster(servers)
    else:
        with BarnabasBroker(barnabas_settings, mode=_mode(pytestconfig)) as broker:
            yield broker


@pytest.fixture
def barnabas_fresh_broker(
    pytestconfig: pytest.Config, barnabas_settings: Mapping[str, str]
) -> Iterator[BarnabasBroker]:
    """A Kafka broker of this test's own, clean at its start; it may be stopped and restarted."""
    from barnabas.testing.broker import BarnabasBroker

    with BarnabasBroker(barnabas_settings, mode=_mode(pytestconfig)) as broker:
        yield broker


@pytest.fixture
def barnabas_topic(barnabas_broker: Cluster, request: pytest.FixtureRequest) -> str:
    """The name of a new topic, with one partition, on the shared broker."""
    import re
    import secrets

    test = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:80]
    return barnabas_broker.create_topic(f"{test}-{next(_counter)}-{secrets.token_hex(3)}")


def _mode(config: pytest.Config) -> str:
    mode = config.getoption("--barnabas-mode") or config.getini("barnabas_mode")
    if mode not in _MODES:
        raise pytest.UsageError(f"barnabas_mode = {mode} is not known: choose from {', '.join(_MODES)}")
    return str(mode)
