"""DescribeClientQuotas, AlterClientQuotas, and quotas of partitions made and deleted, as clients see them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.broker.server.handlers.admin.conftest import AdminBroker, Play

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.metadata import ClusterImage, znodes
from barnabas.broker.metadata.builder import all_paths
from barnabas.broker.server.handlers import load
from barnabas.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.kafka.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from barnabas.kafka.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)

EXACT, DEFAULT, ANY = 0, 1, 2


def entry(entity: dict[str, str | None], **values: float | None) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in values.items()
        ],
    )


async def alter(
    broker: AdminBroker, *entries: EntryData, version: int = 1, validate_only: bool = False
) -> Any:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return [result.error_code for result in (await broker.ask(request, version)).entries]


async def described(broker: AdminBroker, *components: ComponentData, strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    response = await broker.ask(request)
    assert response.error_code == 0, response.error_message
    return [
        (
            {each.entity_type: each.entity_name for each in found.entity},
            {each.key: each.value for each in found.values},
        )
        for found in response.entries
    ]


def component(kind: str, match_type: int, name: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match_type, match=name)


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_changed_and_removed(play: Play, version: int) -> None:
    async def scenario(broker: AdminBroker) -> None:
        alice = {"user": "alice"}
        assert await alter(
            broker, entry(alice, producer_byte_rate=1024, request_percentage=12.5), version=version
        ) == [0]
        assert await described(broker) == [(alice, {"producer_byte_rate": 1024, "request_percentage": 12.5})]
        await alter(broker, entry(alice, producer_byte_rate=None, consumer_byte_rate=5), version=version)
        assert await described(broker) == [(alice, {"consumer_byte_rate": 5, "request_percentage": 12.5})]
        await alter(broker, entry(alice, request_percentage=None, consumer_byte_rate=None), version=version)
        assert await described(broker) == []
        assert broker.quotas.is_idle

    play(scenario)


def test_they_are_stored_where_kafka_stored_them(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        both: dict[str, str | None] = {"user": "al/ice", "client-id": None}
        entities: list[dict[str, str | None]] = [
            {"user": None},
            both,
            {"client-id": "app"},
            {"client-id": "<default>"},
        ]
        entries = [entry(entity, consumer_byte_rate=7) for entity in entities]
        entries.append(entry({"ip": "192.0.2.7"}, connection_creation_rate=3))
        assert await alter(broker, *entries) == [0] * 5
        for path, name, value in [
            ("/config/users/<default>", "consumer_byte_rate", "7"),
            ("/config/users/al%2Fice/clients/<default>", "consumer_byte_rate", "7"),
            ("/config/clients/app", "consumer_byte_rate", "7"),
            ("/config/clients/%3Cdefault%3E", "consumer_byte_rate", "7"),
            ("/config/ips/192.0.2.7", "connection_creation_rate", "3"),
        ]:
            stored = json.loads((await broker.store.get(path)).data)
            assert stored == {"version": 1, "config": {name: value}}
        assert len(await described(broker)) == 5

    play(scenario)


def test_quotas_and_credentials_of_a_user_leave_each_other_alone(play: Play) -> None:
    upsertion = ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
    )
    deletion = ScramCredentialDeletion(name="alice", mechanism=1)

    async def users(broker: AdminBroker) -> list[str]:
        found = await broker.ask(DescribeUserScramCredentialsRequest(users=None))
        return [each.user for each in found.results]

    async def scenario(broker: AdminBroker) -> None:
        alice: dict[str, str | None] = {"user": "alice"}
        pair = {**alice, "client-id": "app"}
        await alter(broker, entry(alice, producer_byte_rate=1), entry(pair, producer_byte_rate=2))
        assert await users(broker) == []
        await broker.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]))
        assert await users(broker) == ["alice"]
        assert len(await described(broker)) == 2
        await alter(broker, entry(alice, producer_byte_rate=None))
        assert await users(broker) == ["alice"]
        result = await broker.ask(AlterUserScramCredentialsRequest(deletions=[deletion]))
        assert [each.error_code for each in result.results] == [0]
        assert await users(broker) == []
        assert await described(broker) == [(pair, {"producer_byte_rate": 2})]
        await alter(broker, entry(pair, producer_byte_rate=None))
        assert await described(broker) == []

    play(scenario)


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({}, {"producer_byte_rate": 1}),
        ({"user": "alice", "ip": "127.0.0.1"}, {"producer_byte_rate": 1}),
        ({"user": ""}, {"producer_byte_rate": 1}),
        ({"user": "a" * 257}, {"producer_byte_rate": 1}),
        ({"group": "g"}, {"producer_byte_rate": 1}),
        ({"ip": "somewhere"}, {"connection_creation_rate": 1}),
        ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1}),
        ({"user": "alice"}, {"connection_creation_rate": 1}),
        ({"user": "alice"}, {"SCRAM-SHA-256": 1}),
        ({"user": "alice"}, {"producer_byte_rate": 1.5}),
        ({"user": "alice"}, {"producer_byte_rate": 0}),
        ({"user": "alice"}, {"producer_byte_rate": 1e30}),
        ({"ip": "127.0.0.1"}, {"connection_creation_rate": 2**31}),
        ({"user": "alice"}, {"request_percentage": -1}),
        ({"user": "alice"}, {"request_percentage": float("nan")}),
        ({"user": "alice"}, {"request_percentage": float("inf")}),
    ],
)
def test_what_is_no_quota_is_refused(play: Play, entity: Any, values: Any) -> None:
    async def scenario(broker: AdminBroker) -> None:
        good = entry({"user": "bob"}, producer_byte_rate=1)
        assert await alter(broker, entry(entity, **values), good) == [ErrorCode.INVALID_REQUEST, 0]
        assert await described(broker) == [({"user": "bob"}, {"producer_byte_rate": 1})]

    play(scenario)


def test_quota_that_does_not_exist_can_be_removed_as_in_apache_kafka(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        removed = {"no_such_rate": None, "connection_creation_rate": None}
        assert await alter(broker, entry({"user": "a"}, producer_byte_rate=1, **removed)) == [0]
        assert await described(broker) == [({"user": "a"}, {"producer_byte_rate": 1})]

    play(scenario)


def test_quota_that_a_request_changes_twice_is_refused(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        twice = entry({"user": "a"}, producer_byte_rate=1)
        twice.ops *= 2
        assert await alter(broker, twice) == [ErrorCode.INVALID_REQUEST]

    play(scenario)


def test_error_of_all_quotas_comes_without_a_list_of_them() -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, "no")
    request = DescribeClientQuotasRequest()
    answer = load()[request.api_key].on_error(request, error)
    assert (answer.error_code, answer.error_message, answer.entries) == (error.code, "no", None)


def test_what_is_only_validated_is_not_stored(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        assert await alter(broker, entry({"user": "a"}, producer_byte_rate=1), validate_only=True) == [0]
        assert await described(broker) == []

    play(scenario)


def test_quotas_are_found_by_what_they_are_of(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        everyone: dict[str, str | None] = {"user": None}
        alice: dict[str, str | None] = {"user": "alice"}
        pair: dict[str, str | None] = {"user": "alice", "client-id": "app"}
        app: dict[str, str | None] = {"client-id": "app"}
        for entity in (everyone, alice, pair, app):
            await alter(broker, entry(entity, producer_byte_rate=1))

        async def entities(*components: ComponentData, strict: bool = False) -> list[Any]:
            return [entity for entity, _ in await described(broker, *components, strict=strict)]

        assert await entities() == [app, everyone, alice, pair]
        assert await entities(component("user", EXACT, "alice")) == [alice, pair]
        assert await entities(component("user", EXACT, "alice"), strict=True) == [alice]
        assert await entities(component("user", DEFAULT)) == [everyone]
        assert await entities(component("user", ANY), strict=True) == [everyone, alice]
        assert await entities(component("user", ANY), component("client-id", ANY)) == [pair]
        assert await entities(component("client-id", EXACT, "app"), strict=True) == [app]
        assert await entities(component("ip", ANY)) == []

    play(scenario)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([component("user", ANY), component("user", ANY)], ErrorCode.INVALID_REQUEST),
        ([component("user", ANY), component("ip", ANY)], ErrorCode.INVALID_REQUEST),
        ([component("user", 3)], ErrorCode.INVALID_REQUEST),
        ([component("user", EXACT)], ErrorCode.INVALID_REQUEST),
        ([component("group", ANY)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_nobody_can_be_asked_for_is_refused(
    play: Play, components: list[ComponentData], code: ErrorCode
) -> None:
    async def scenario(broker: AdminBroker) -> None:
        with pytest.raises(KafkaError) as refused:
            await broker.ask(DescribeClientQuotasRequest(components=components))
        assert refused.value.code is code

    play(scenario)


def new_topics(*names: str, partitions: int = 10) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    )


async def limit_mutations(broker: AdminBroker) -> None:
    """Set a quota of one new partition a second. A burst may have 11, because the quota covers 11 seconds."""
    await alter(broker, entry({"client-id": "test"}, controller_mutation_rate=1))


def test_topics_are_refused_that_exceed_the_quota_and_may_be_made_later(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await limit_mutations(broker)
        response = await broker.ask(new_topics("a", "b", "c"))
        assert {topic.name: topic.error_code for topic in response.topics} == {
            "a": 0,
            "b": 0,
            "c": ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        }
        assert response.throttle_time_ms == 9000
        assert "c" not in broker.image.topics
        broker.now += 9
        response = await broker.ask(new_topics("c"))
        assert [topic.error_code for topic in response.topics] == [0]

    play(scenario)


def test_clients_that_do_not_know_the_error_are_served_and_told_to_wait(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await limit_mutations(broker)
        response = await broker.ask(new_topics("a", "b", "c"), 5)
        assert [topic.error_code for topic in response.topics] == [0, 0, 0]
        assert response.throttle_time_ms == 19000

    play(scenario)


def test_deleted_and_added_partitions_count(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.ask(new_topics("a", "b"))
        await limit_mutations(broker)
        grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=15, assignments=None)])
        assert [r.error_code for r in (await broker.ask(grow)).results] == [0]
        response = await broker.ask(DeleteTopicsRequest(topic_names=["a"]), 5)
        assert [r.error_code for r in response.responses] == [0]
        assert response.throttle_time_ms == 0
        response = await broker.ask(DeleteTopicsRequest(topic_names=["b"]), 5)
        assert [r.error_code for r in response.responses] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert response.throttle_time_ms == 9000
        assert "b" in broker.image.topics
        grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="b", count=15, assignments=None)])
        response = await broker.ask(grow)
        assert [r.error_code for r in response.results] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]

    play(scenario)


def test_what_is_only_validated_costs_nothing(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await limit_mutations(broker)
        request = new_topics("a", partitions=100)
        request.validate_only = True
        for _ in range(3):
            response = await broker.ask(request)
            assert [topic.error_code for topic in response.topics] == [0]
            assert response.throttle_time_ms == 0

    play(scenario)


def test_quotas_outlive_a_restart_of_everything(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await alter(broker, entry({"user": "alice", "client-id": "app"}, producer_byte_rate=1))
        paths = {znodes.quota_config(entity) for entity in broker.image.client_quotas}
        assert paths <= await all_paths(broker.store, ClusterImage())

    play(scenario)
