"""Valid combinations of the metadata store's settings."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from simulation.faulty_disk import FaultyDisk

from barnabas.base.environment.filesystem import replace_file
from barnabas.base.errors import ConfigError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.metadata.folders import SHARED, check_alone, cluster_of
from barnabas.broker.metadata.opening import check_store
from barnabas.broker.metadata.store import StoreUnavailableError


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"metadata.store": "memory"},
        {"metadata.store": "embedded", "zookeeper.session.timeout.ms": "6000"},
        {"zookeeper.connect": "zk1,zk2:2182/prod"},
        {"zookeeper.connect": "zk1", "metadata.store": "zookeeper"},
    ],
    ids=str,
)
def test_settings_that_agree_are_taken(settings: dict[str, str]) -> None:
    check_store(BrokerConfig.from_text(settings))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"metadata.store": "zookeeper"}, "metadata.store=zookeeper needs zookeeper.connect"),
        (
            {"metadata.store": "embedded", "zookeeper.connect": "zk1"},
            "metadata.store=embedded contradicts zookeeper.connect=zk1",
        ),
        ({"zookeeper.connect": "zk1:x"}, "zookeeper.connect='zk1:x' has no valid port"),
        ({"zookeeper.connect": ""}, "zookeeper.connect='' has no valid host"),
        (
            {"zookeeper.connect": "zk1", "zookeeper.set.acl": "true"},
            "zookeeper.set.acl=true needs brokers that",
        ),
        ({"zookeeper.connect": "zk1", "zookeeper.digest": "secret"}, "zookeeper.digest cannot be used"),
    ],
    ids=str,
)
def test_settings_that_contradict_one_another_are_refused(settings: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_store(BrokerConfig.from_text(settings))
    assert told in str(refused.value)


def test_broker_without_zookeeper_does_not_import_kazoo() -> None:
    code = "import sys, barnabas.broker.server.run, barnabas.cli.start.command; print('kazoo' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


@pytest.mark.parametrize("parent", ["/", "/data"])
@pytest.mark.parametrize(
    ("layout", "is_found"), [({"is_embedded": True}, True), ({"is_embedded": False}, False), ([], False)]
)
def test_cluster_of_a_log_directory_is_one_that_barnabas_start_runs(
    parent: str, layout: object, is_found: bool
) -> None:
    disk = FaultyDisk()
    member = f"{parent.rstrip('/')}/broker-1"
    disk.make_directory(member)
    replace_file(disk, f"{parent.rstrip('/')}/{SHARED}", json.dumps(layout).encode())
    assert cluster_of(disk, [member]) == (parent if is_found else None)


@pytest.mark.parametrize(
    ("files", "command"),
    [
        (["broker-1.toml"], "`barnabas cluster start --brokers 1 --data /d`"),
        (["broker-1.toml", "metadata-1.journal"], "`barnabas start --brokers 1` and"),
        ([], "`barnabas start --brokers 1` and"),
    ],
)
def test_lone_broker_in_the_folder_of_several_without_their_layout_names_their_command(
    files: list[str], command: str
) -> None:
    """The first start of `barnabas cluster start` has failed, or this is another one of their log.dirs."""
    disk = FaultyDisk()
    disk.make_directory("/d")
    disk.make_directory("/d/broker-1")
    for name in ("broker-1/meta.properties", *files):
        replace_file(disk, f"/d/{name}", b"")
    with pytest.raises(StoreUnavailableError, match=f"has the data of 1 brokers: start them with {command}"):
        check_alone(disk, ["/d"])
