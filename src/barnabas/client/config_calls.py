"""Requests that describe and change the settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.base.types import BrokerId
from barnabas.client.admin_types import ConfigValue
from barnabas.client.brokers import Brokers, check
from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import ClientError
from barnabas.client.topic_calls import check_topic
from barnabas.kafka.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)

#: the types of resources, by their numbers in the protocol
_TYPES = {"topic": 2, "broker": 4, "client metrics": 16, "group": 32}
#: The number of each change of a setting in IncrementalAlterConfigs.
_OPERATIONS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
_DEFAULT = 5
_SOURCES = {
    1: "topic",
    2: "dynamic broker",
    3: "dynamic default broker",
    4: "static broker",
    5: "default",
    6: "dynamic broker logger",
    7: "client metrics",
    8: "group",
}


def describe_settings(brokers: Brokers, kind: str, name: str) -> list[ConfigValue]:
    """Return the settings of a resource, sorted by name.

    Args:
        kind: "topic", "group", "client metrics" or "broker".
        name: name of the resource; for a broker its id, or "" for the defaults of all brokers (KIP-226).

    Raises:
        KafkaError: the broker rejected the request.
        ClientError: the broker does not answer, `kind` is unknown, or `name` is not the id of a broker.
    """
    resource = DescribeConfigsResource(
        resource_type=_type_of(kind), resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)

    if kind == "broker" and name:
        response = brokers.ask_broker(_broker_id(name), lambda connection: connection.ask(request))
    else:
        response = brokers.ask_any(request)
    (result,) = response.results
    _check(result, kind, name)
    return sorted(map(_value, result.configs), key=lambda value: value.name)


def alter_settings(
    brokers: Brokers, kind: str, name: str, changes: Iterable[tuple[str, str, str | None]]
) -> None:
    """Change settings of a resource.

    Args:
        kind: "topic", "group", "client metrics" or "broker".
        name: name of the resource; for a broker its id, or "" for the defaults of all brokers (KIP-226).
        changes: triples of an operation, the name of a setting, and a value. The operation is "set",
            "delete", "append" or "subtract"; "delete" has the value None.

    Raises:
        KafkaError: the broker rejected the request.
        ClientError: the broker does not answer, or `name` is not the id of a broker.
    """
    request = IncrementalAlterConfigsRequest(resources=[changed_resource(kind, name, changes)])

    def alter(connection: BrokerConnection) -> None:
        (result,) = connection.ask(request).responses
        _check(result, kind, name)

    if kind == "broker" and name:
        brokers.ask_broker(_broker_id(name), alter)
    else:
        brokers.ask_controller(alter)


def changed_resource(
    kind: str, name: str, changes: Iterable[tuple[str, str, str | None]]
) -> AlterConfigsResource:
    """Return the part of an IncrementalAlterConfigs request for one resource.

    `kind` is "topic", "group", "client metrics" or "broker", and `name` the name of the resource. `changes`
    has triples of an operation ("set", "delete", "append" or "subtract"), the name of a setting, and a value.
    """
    return AlterConfigsResource(
        resource_type=_type_of(kind),
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=_OPERATIONS[operation], value=value)
            for operation, key, value in changes
        ],
    )


def _type_of(kind: str) -> int:
    number = _TYPES.get(kind)
    if number is None:
        raise ClientError(f"{kind!r} is no kind of resource with settings: use {', '.join(_TYPES)}")
    return number


def _broker_id(name: str) -> BrokerId:
    if not name.isdecimal():
        raise ClientError(f"{name!r} is not a broker's id, which is a number")
    return int(name)


def _check(result: DescribeConfigsResult | AlterConfigsResourceResponse, kind: str, name: str) -> None:
    if kind == "topic":
        check_topic(result.error_code, name, result.error_message)
    else:
        check(result.error_code, f"{kind} {name}".strip(), result.error_message)


def _value(config: DescribeConfigsResourceResult) -> ConfigValue:
    return ConfigValue(
        config.name,
        config.value,
        _SOURCES.get(config.config_source, "unknown"),
        config.config_source == _DEFAULT,
        config.read_only,
        config.is_sensitive,
        tuple((synonym.name, synonym.value) for synonym in config.synonyms),
    )
