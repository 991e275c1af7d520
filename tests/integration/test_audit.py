"""The audit log of a broker: it has the actions of users, and not their secrets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.integration.acl_broker import PASSWORD, AclBroker
from tests.integration.conftest import Wire

from barnabas.base.errors import ErrorCode
from barnabas.cli.app import app
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest


def audited(folder: Path, use: Callable[[AclBroker], None]) -> list[dict[str, Any]]:
    """Use a broker, stop it, and return its audit log."""
    path = folder / "audit.log"
    with AclBroker(folder / "data", **{"barnabas.audit.file": str(path)}) as broker:
        use(broker)
    text = path.read_text()
    assert PASSWORD not in text
    return [json.loads(line) for line in text.splitlines()]


def fail_to_log_in(address: str, user: str) -> None:
    wire = Wire(address)
    wire(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert wire(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0wrong".encode()), 2).error_code
    wire.close()


def short(entry: dict[str, Any]) -> tuple[Any, ...]:
    return entry["event"], entry["principal"], entry.get("request") or entry.get("mechanism")


def test_logins_denials_and_changes_are_in_it(tmp_path):
    def use(broker: AclBroker) -> None:
        broker.add("alice")
        admin, alice = Wire(broker.open_address), broker.connect("alice")
        fail_to_log_in(broker.address, "alice")
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        assert admin(CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0
        assert admin(CreateTopicsRequest(topics=[topic])).topics[0].error_code
        refused = alice(CreateTopicsRequest(topics=[topic])).topics[0]
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for _ in range(3):
            alice(_list_offsets("orders"))
        alice(FindCoordinatorRequest(coordinator_keys=["their-group"]))
        secret = AlterableConfig(name="sasl.jaas.config", value=f"password={PASSWORD}")
        broker_itself = AlterConfigsResource(resource_type=4, resource_name="1", configs=[secret])
        admin(IncrementalAlterConfigsRequest(resources=[broker_itself]))
        admin(DeleteGroupsRequest(groups_names=["nobodys"]))
        admin(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), 6)
        admin.close()
        alice.close()

    entries = audited(tmp_path, use)
    root, alice = "User:ANONYMOUS", "User:alice"
    assert [short(entry) for entry in entries if "repeated" not in entry] == [
        ("change", root, "AlterUserScramCredentials"),
        ("login", alice, "PLAIN"),
        ("login failed", root, "PLAIN"),
        ("change", root, "CreateTopics"),
        ("change", root, "CreateTopics"),
        ("denied", alice, "CreateTopics"),
        ("change", alice, "CreateTopics"),
        ("denied", alice, "ListOffsets"),
        ("denied", alice, "FindCoordinator"),
        ("change", root, "IncrementalAlterConfigs"),
        ("change", root, "DeleteGroups"),
        ("change", root, "DeleteTopics"),
    ]
    assert [entry["repeated"] for entry in entries if "repeated" in entry] == [2]
    failed = next(entry for entry in entries if entry["event"] == "login failed")
    assert failed["user"] == "alice" and failed["host"] == "127.0.0.1"
    second = [entry for entry in entries if entry.get("request") == "CreateTopics"][1]
    assert second["failed"] == [{"name": "orders", "error": "TOPIC_ALREADY_EXISTS"}]
    denied = next(entry for entry in entries if entry.get("request") == "ListOffsets")
    assert denied["denied"][0]["name"] == "orders"


def test_a_consumer_that_may_not_read_is_in_it_by_topic(tmp_path):
    """It also has frequent requests, and those that a direct function answers."""

    def use(broker: AclBroker) -> None:
        broker.add("alice")
        admin, alice = Wire(broker.open_address), broker.connect("alice")
        admin(
            CreateTopicsRequest(topics=[CreatableTopic(name="mine", num_partitions=1, replication_factor=1)])
        )
        rule = AclCreation(
            resource_type=2,
            resource_name="mine",
            principal="User:alice",
            host="*",
            operation=8,
            permission_type=3,
        )
        assert admin(CreateAclsRequest(creations=[rule])).results[0].error_code == 0
        fetch = FetchRequest(
            max_wait_ms=0,
            topics=[
                FetchTopic(topic="mine", partitions=[FetchPartition(partition=0, partition_max_bytes=10)])
            ],
        )
        answer = alice(fetch, 11)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for wire in (admin, alice):
            wire.close()

    (denied,) = [entry for entry in audited(tmp_path, use) if entry["event"] == "denied"]
    assert denied["request"] == "Fetch" and denied["principal"] == "User:alice"
    assert denied["denied"][0]["topic"] == "mine"


def _list_offsets(topic: str) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])


def test_it_is_shipped_into_a_topic_each_entry_as_a_record(tmp_path):
    """The test follows docs/use/security.md: `barnabas ship` sends the log to another broker."""

    def use(broker: AclBroker) -> None:
        broker.add("alice")
        fail_to_log_in(broker.address, "alice")

    written = audited(tmp_path, use)
    assert len(written) == 2
    with AclBroker(tmp_path / "collector") as collector:
        servers = ("--bootstrap-server", collector.open_address)
        state = ("--state", str(tmp_path / "state"))
        for _ in range(2):  # what is there already does not come twice
            _run("ship", str(tmp_path / "audit.log"), "--topic", "audit", "--once", *state, *servers)
        lines = _run("consume", "audit", "--from-beginning", "--until-end", *servers).splitlines()
    records = [json.loads(line) for line in lines]
    for entry, record in zip(written, records, strict=True):
        assert record.items() >= entry.items()


def _run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout
