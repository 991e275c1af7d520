"""The pytest plugin: a real broker as a fixture, for tests with any Kafka client.

    def test_orders(barnabas_broker, barnabas_topic):
        barnabas_broker.produce(barnabas_topic, {"id": 1})
        assert my_app.read_orders(barnabas_broker.bootstrap_servers, barnabas_topic) == [{"id": 1}]

Fixtures:
    barnabas_broker: one broker for the whole run (each xdist worker has its own).
    barnabas_topic: the name of a new topic with one partition on that broker.
    barnabas_fresh_broker: a broker of the test's own, without topics or groups.
    barnabas_secure_broker: such a broker with TLS and ACLs: `.client("alice")`, `.grant(...)`,
        `.certificates`.
    barnabas_cluster: starts clusters for the test: `cluster = barnabas_cluster(brokers=3)`.
    barnabas_pipeline: reads a pipeline file, to test it with rows: `shop = barnabas_pipeline("shop.py")`.
    barnabas_spark: the Spark session of the whole run, which `barnabas_pipeline` uses.
    barnabas_settings: override it (session scope) to give the brokers settings: {"num.partitions": 3}.

Options: `--barnabas-mode thread|process` (also in the ini file as `barnabas_mode`) runs the brokers in this
process or in processes of their own. `--barnabas-servers HOST:PORT` runs the tests with `barnabas_broker`
against another cluster, for example Apache Kafka.

The plugin is loaded in every pytest run where Barnabas is installed, so it imports Barnabas only when a
fixture is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from barnabas.testing.barnabas_cluster import BarnabasCluster
    from barnabas.testing.broker import BarnabasBroker
    from barnabas.testing.cluster import Cluster
    from barnabas.testing.pipelines import PipelineUnderTest
    from barnabas.testing.secure_broker import SecureBroker

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
def barnabas_settings() -> Mapping[str, Any]:
    """Broker settings for the test brokers, by Kafka's names; override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def barnabas_broker(pytestconfig: pytest.Config, barnabas_settings: Mapping[str, Any]) -> Iterator[Cluster]:
    """A Kafka broker shared by all tests of the run: `barnabas_broker.bootstrap_servers` is its address."""
    yield from shared_broker(pytestconfig, barnabas_settings)


def shared_broker(config: pytest.Config, settings: Mapping[str, Any]) -> Iterator[Cluster]:
    """Yield a broker for the tests of a scope, or the cluster that ``--barnabas-servers`` names.

    `settings` are the broker's settings, by Kafka's names. If the named cluster does not answer, the test
    fails.
    """
    from barnabas.testing.broker import BarnabasBroker

    servers = config.getoption("--barnabas-servers")
    if servers:
        from barnabas.client.errors import ClientError, UnreachableError
        from barnabas.client.reach import require_broker
        from barnabas.testing.cluster import Cluster

        try:
            require_broker(servers)
        except UnreachableError as error:
            hint = "with --barnabas-servers HOST:PORT (without it, a broker is started for the tests)"
            pytest.fail(f"{error} {hint}", pytrace=False)
        except ClientError as error:
            pytest.fail(f"--barnabas-servers {servers}: {error}", pytrace=False)
        yield Cluster(servers)
    else:
        with BarnabasBroker(settings, mode=_mode(config)) as broker:
            yield broker


@pytest.fixture
def barnabas_fresh_broker(
    pytestconfig: pytest.Config, barnabas_settings: Mapping[str, Any]
) -> Iterator[BarnabasBroker]:
    """A new Kafka broker for this test, without topics. The test may stop and restart it."""
    from barnabas.testing.broker import BarnabasBroker

    with BarnabasBroker(barnabas_settings, mode=_mode(pytestconfig)) as broker:
        yield broker


@pytest.fixture
def barnabas_secure_broker(barnabas_settings: Mapping[str, Any]) -> Iterator[SecureBroker]:
    """A new Kafka broker for this test, with TLS, logins and ACLs: see `barnabas.testing.SecureBroker`."""
    from barnabas.testing.secure_broker import SecureBroker

    with SecureBroker(barnabas_settings) as broker:
        yield broker


@pytest.fixture
def barnabas_cluster(
    pytestconfig: pytest.Config, barnabas_settings: Mapping[str, Any]
) -> Iterator[Callable[..., BarnabasCluster]]:
    """A function that starts a cluster for this test: ``barnabas_cluster(brokers=3)``.

    The function takes the arguments of `barnabas.testing.BarnabasCluster`. The clusters stop at the end of
    the test.
    """
    from barnabas.testing.barnabas_cluster import BarnabasCluster

    with ExitStack() as started:

        def start(
            brokers: int = 3,
            settings: Mapping[str, Any] | None = None,
            *,
            mode: str | None = None,
            store: str | None = None,
            **more: Any,
        ) -> BarnabasCluster:
            if mode is None and store is None:
                mode = _mode(pytestconfig)
            cluster = BarnabasCluster(
                brokers, {**barnabas_settings, **(settings or {})}, mode=mode, store=store, **more
            )
            return started.enter_context(cluster)

        yield start


@pytest.fixture(scope="session")
def barnabas_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session of two cores for the whole run, with the settings of pipelines."""
    from barnabas.pipelines.session import start_session

    folder = tmp_path_factory.mktemp("spark")
    spark = start_session("barnabas tests", folder, "local[2]", {}, folder / "spark.log")
    yield spark
    spark.stop()


@pytest.fixture
def barnabas_pipeline(
    barnabas_spark: SparkSession, barnabas_fresh_broker: BarnabasBroker, tmp_path: Path
) -> Callable[..., PipelineUnderTest]:
    """A function that prepares a pipeline file for a test, and returns a `PipelineUnderTest`.

        shop = barnabas_pipeline("shop.py", day="2026-03-01")

    The first argument is the path of the file, relative to the working directory. Keyword arguments are the
    pipeline's parameters. See `barnabas.testing.pipelines`.
    """
    from pathlib import Path

    from barnabas.testing.pipelines import PipelineUnderTest

    def read(file: str | Path, **parameters: str) -> PipelineUnderTest:
        folder = tmp_path / f"pipeline-{next(_counter)}"
        return PipelineUnderTest(barnabas_spark, barnabas_fresh_broker, Path(file), folder, parameters)

    return read


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
