"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs as a client sees them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.server.handlers.admin.conftest import AdminBroker, Play

from barnabas.base.errors import ErrorCode
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.controller import NewTopic
from barnabas.kafka.protocol.messages import alter_configs, incremental_alter_configs
from barnabas.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND = 0, 1, 2
MIN_ISR = "min.insync.replicas"


async def describe(
    broker: AdminBroker, kind: int, name: str, keys: list[str] | None = None, version: int = 4, **options: Any
) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    response = await broker.ask(DescribeConfigsRequest(resources=[resource], **options), version)
    (result,) = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def alter(broker: AdminBroker, kind: int, name: str, *steps: tuple[str, int, str | None]) -> Any:
    configs = [
        incremental_alter_configs.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in steps
    ]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = (await broker.ask(request)).responses
    return result


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_topic_setting_is_described(play: Play, version: int) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t", configs={"retention.ms": "5"})])
        result = await describe(
            broker, TOPIC, "t", version=version, include_synonyms=True, include_documentation=True
        )
        configs = {config.name: config for config in result.configs}
        assert configs.keys() == TopicConfig.declared.keys()
        assert result.error_message == "", "as from Apache Kafka"
        retention = configs["retention.ms"]
        assert (retention.value, retention.config_source) == ("5", 1)
        assert not retention.read_only
        assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
            ("retention.ms", "5", 1),
            ("log.retention.hours", "168", 5),
        ]
        if version >= 3:
            assert retention.config_type == 5
            assert retention.documentation == TopicConfig.find("retention.ms").doc

    play(scenario)


def test_every_broker_setting_is_described_with_its_source(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        result = await describe(broker, BROKER, "1", include_synonyms=True)
        configs = {config.name: config for config in result.configs}
        assert configs.keys() == BrokerConfig.declared.keys()
        assert (configs["node.id"].value, configs["node.id"].config_source) == ("1", 4)
        assert configs["node.id"].read_only
        assert (configs["log.segment.bytes"].config_source, configs["log.segment.bytes"].read_only) == (
            5,
            False,
        )
        assert configs["num.partitions"].synonyms[0].value == "1"
        assert configs["num.partitions"].documentation is None

    play(scenario)


def test_only_what_is_asked_for_is_described(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t")])
        result = await describe(broker, TOPIC, "t", ["retention.ms", "no.such"])
        assert [(config.name, config.synonyms) for config in result.configs] == [("retention.ms", [])]
        assert len((await describe(broker, TOPIC, "t", [])).configs) == len(TopicConfig.declared)

    play(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resource_without_settings_is_refused_with_a_reason(
    play: Play, kind: int, name: str, expected: ErrorCode
) -> None:
    async def scenario(broker: AdminBroker) -> None:
        result = await describe(broker, kind, name)
        assert (result.error_code, result.configs) == (expected, [])
        assert result.error_message

    play(scenario)


def test_change_for_all_brokers_holds_at_once_for_broker_and_topics(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t")])
        assert (await alter(broker, BROKER, "", ("message.max.bytes", SET, "5000"))).error_code == 0
        assert broker.config.message_max_bytes == 5000
        assert broker.view.topic_config("t").max_message_bytes == 5000
        min_isr, shown = (await describe(broker, BROKER, "")).configs
        assert (shown.name, shown.value, shown.config_source) == ("message.max.bytes", "5000", 3)
        assert (min_isr.name, min_isr.value, min_isr.config_source) == (MIN_ISR, "1", 3)
        (of_topic,) = (await describe(broker, TOPIC, "t", ["max.message.bytes"])).configs
        assert (of_topic.value, of_topic.config_source) == ("5000", 3)
        await alter(broker, BROKER, "1", ("message.max.bytes", SET, "6000"))
        assert broker.config.message_max_bytes == 6000
        await alter(broker, BROKER, "1", ("message.max.bytes", DELETE, None))
        await alter(broker, BROKER, "", ("message.max.bytes", DELETE, None))
        assert broker.config.message_max_bytes == 1_048_588

    play(scenario)


@pytest.mark.parametrize("version", [0, 1])
def test_good_and_bad_changes_of_one_request_are_told_apart(play: Play, version: int) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t")])
        resources = [
            incremental_alter_configs.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=name,
                configs=[incremental_alter_configs.AlterableConfig(name="retention.ms", value="5")],
            )
            for name in ("t", "nope")
        ]
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources)
        response = await broker.ask(request, version)
        assert [(r.resource_name, r.error_code) for r in response.responses] == [
            ("t", ErrorCode.NONE),
            ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert broker.image.topic_config("t") == {"retention.ms": "5"}

    play(scenario)


def test_setting_named_twice_for_one_resource_is_refused(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t")])
        result = await alter(broker, TOPIC, "t", ("retention.ms", SET, "5"), ("retention.ms", DELETE, None))
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "retention.ms" in result.error_message
        assert broker.image.topic_config("t") == {}

    play(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "steps", "expected"),
    [
        (TOPIC, "nope", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "nope", [("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("no.such", SET, None)], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [("message.max.bytes", SET, "x"), ("node.id", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        (BROKER, "1", [(MIN_ISR, SET, "0")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [(MIN_ISR, DELETE, None), ("message.max.bytes", SET, "x")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_first_error_of_a_resource_is_the_one_that_apache_kafka_finds_first(
    play: Play, kind: int, name: str, steps: list[tuple[str, int, str | None]], expected: ErrorCode
) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t")])
        assert (await alter(broker, kind, name, *steps)).error_code == expected

    play(scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_all_and_refuses_a_resource_named_twice(play: Play, version: int) -> None:
    async def scenario(broker: AdminBroker) -> None:
        topics = [NewTopic("t", configs={"retention.ms": "5"}), NewTopic("u")]
        await broker.controller.topics.create(topics)
        resources = [
            alter_configs.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name="segment.bytes", value="100")],
            )
            for name in ("t", "u", "u")
        ]
        response = await broker.ask(alter_configs.AlterConfigsRequest(resources=resources), version)
        assert [(r.resource_name, r.error_code) for r in response.responses] == [
            ("t", ErrorCode.NONE),
            ("u", ErrorCode.INVALID_REQUEST),
            ("u", ErrorCode.INVALID_REQUEST),
        ]
        assert broker.image.topic_config("t") == {"segment.bytes": "100"}
        assert broker.image.topic_config("u") == {}

    play(scenario)


def test_alter_configs_replaces_what_is_set_for_all_brokers_and_a_broker_of_its_own_takes_precedence(
    play: Play,
) -> None:
    async def replace(broker: AdminBroker, **texts: str) -> None:
        texts[MIN_ISR] = "1"  # the cluster always has one
        configs = [alter_configs.AlterableConfig(name=n.replace("_", "."), value=v) for n, v in texts.items()]
        resource = alter_configs.AlterConfigsResource(resource_type=BROKER, resource_name="", configs=configs)
        (result,) = (await broker.ask(alter_configs.AlterConfigsRequest(resources=[resource]))).responses
        assert result.error_code == 0, result.error_message

    async def scenario(broker: AdminBroker) -> None:
        await replace(broker, message_max_bytes="5000", log_retention_ms="7")
        await replace(broker, message_max_bytes="6000")
        keys = ["message.max.bytes"]
        (shown,) = (await describe(broker, BROKER, "", keys, include_synonyms=True)).configs
        assert (shown.name, shown.value, shown.config_source) == ("message.max.bytes", "6000", 3)
        assert [(s.value, s.source) for s in shown.synonyms] == [("6000", 3)]
        await alter(broker, BROKER, "1", ("message.max.bytes", SET, "8000"))
        (of_one,) = (await describe(broker, BROKER, "1", keys, include_synonyms=True)).configs
        assert (of_one.value, of_one.config_source) == ("8000", 2)
        assert [(s.value, s.source) for s in of_one.synonyms] == [
            ("8000", 2),
            ("6000", 3),
            ("1048588", 5),
        ]
        await replace(broker)
        assert [(c.name, c.value) for c in (await describe(broker, BROKER, "")).configs] == [(MIN_ISR, "1")]
        refused = await alter(broker, BROKER, "", ("node.id", SET, "3"))
        assert refused.error_code == ErrorCode.INVALID_REQUEST

    play(scenario)
