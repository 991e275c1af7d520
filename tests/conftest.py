"""Settings and fixtures of all tests: the number of examples, shared fixtures, and samples of real logs."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import children, effort, forgetful, forked_barnabas, slow, spark_quick
from tests.certificates import Certificates, make

from barnabas.base.text import limited
from barnabas.broker.metadata.zookeeper.server import ZooKeeperMissingError, ZooKeeperServer


def pytest_configure(config: pytest.Config) -> None:
    """Prepare pytest, also in each worker, before it starts a process or imports a test."""
    children.tend()
    spark_quick.quicken()
    forked_barnabas.fork_from_now_on()
    effort.choose(is_sample=_leaves_out_slow(config))


#: log samples of real systems; a machine that has only the repository does not have them
_SAMPLES = Path(
    os.environ.get("BARNABAS_LOG_SAMPLES", Path(__file__).parents[2] / "shared" / "data" / "loghub")
)


@pytest.fixture(scope="session")
def real_logs() -> list[Path]:
    """Return the samples of real logs. Without samples the list is empty, and the test must pass."""
    return sorted(_SAMPLES.glob("*.log"))


@pytest.fixture(scope="session")
def is_whole(pytestconfig: pytest.Config) -> bool:
    """Return whether a test of a matrix should try every combination (True), or a sample."""
    return not _leaves_out_slow(pytestconfig)


def _leaves_out_slow(config: pytest.Config) -> bool:
    return "not slow" in config.getoption("markexpr")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Make an authority, and keys with certificates that it has signed, as PEM files."""
    return make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session", autouse=True)
def _forgetful_clients() -> Iterator[None]:
    with forgetful.forgiven():
        yield


def _is_no_clients(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] not in ("kafka", "aiokafka")


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Return the log of the test, without lines of clients whose broker an earlier test has stopped."""
    caplog.handler.addFilter(_is_no_clients)
    limited.forget()  # lines that other tests have had written
    yield caplog
    caplog.handler.removeFilter(_is_no_clients)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Collect the clients of other libraries that a test has dropped, so that a later test does not."""
    yield
    forgetful.collect()


def _running(server: ZooKeeperServer) -> Iterator[ZooKeeperServer]:
    try:
        server.start(timeout=120)
    except ZooKeeperMissingError as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Start a real ZooKeeper that all tests share. Each test uses its own chroot, and no test stops it."""
    yield from _running(ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), fsync=False))


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """Start a real ZooKeeper for one test, which may pause, stop and start it."""
    yield from _running(ZooKeeperServer(tmp_path / "zookeeper", tick=0.2, fsync=False))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file if all its tests are left out, because imports take most
    of the collection's time.
    """
    return slow.is_left_out(collection_path, config.getoption("markexpr")) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Switch the garbage collector off during the collection, because each run over 15,000 tests takes half a
    second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, tests that can use the samples of real logs, and tests that share a fixture.

    Tests that share a fixture of their module, such as a broker, run in one worker. Otherwise each worker
    would start its own. Files with slow tests come first, and tests of Spark before all others.
    """
    for item in items:
        if slow.is_slow(item.nodeid):
            item.add_marker(pytest.mark.slow)
        if "real_logs" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.real_logs)
        if _shares_with_module(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(  # a long test that begins last ends last, alone
        key=lambda item: (
            "spark" not in getattr(item, "fixturenames", ()),
            item.path not in slow_files,
        )
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the id of each test name its group, from which pytest-xdist sees which tests belong together.

    pytest-xdist 3.8 writes the id to an attribute that pytest 9.2 does not read.
    """
    for item in session.items:
        if nodeid := vars(item).get("_nodeid"):
            item._id = type(item.id).parse(nodeid)


def _shares_with_module(item: pytest.Item) -> bool:
    """Return whether a test uses a fixture of its module, and no Spark session. Spark tests have their own
    rule.
    """
    found = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    if "spark" in found:
        return False
    return any(definitions[-1].scope == "module" for definitions in found.values())
