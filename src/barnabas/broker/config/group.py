"""The settings of a consumer group (KIP-848), each with the broker's setting that gives its default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.broker.config.broker import BrokerConfig
from barnabas.broker.config.setting import Update
from barnabas.broker.config.settings import Layer, Settings, Source


def _overriding(broker_name: str, doc: str) -> Any:
    """Declare a group's setting: the broker's setting, of the same type and bounds, gives its default."""
    name = broker_name.removeprefix("group.")
    return replace(BrokerConfig.declared[broker_name], name=name, synonyms=(broker_name,), doc=doc)


class GroupConfig(Settings, update=Update.CLUSTER_WIDE):
    """The settings of one group of the consumer protocol: its own values over the broker's defaults."""

    consumer_heartbeat_interval_ms: int = _overriding(
        "group.consumer.heartbeat.interval.ms",
        "The interval, in milliseconds, at which members send heartbeats.",
    )
    consumer_session_timeout_ms: int = _overriding(
        "group.consumer.session.timeout.ms",
        "The time, in milliseconds, without a heartbeat after which a member is removed.",
    )

    def check_limits(self, broker: BrokerConfig) -> None:
        """Raises ConfigError unless the values lie within what the broker allows its groups."""
        _check(
            "consumer.heartbeat.interval.ms",
            self.consumer_heartbeat_interval_ms,
            broker.group_consumer_min_heartbeat_interval_ms,
            broker.group_consumer_max_heartbeat_interval_ms,
        )
        _check(
            "consumer.session.timeout.ms",
            self.consumer_session_timeout_ms,
            broker.group_consumer_min_session_timeout_ms,
            broker.group_consumer_max_session_timeout_ms,
        )
        if self.consumer_session_timeout_ms <= self.consumer_heartbeat_interval_ms:
            raise ConfigError(
                f"consumer.session.timeout.ms={self.consumer_session_timeout_ms} must be greater than"
                f" consumer.heartbeat.interval.ms={self.consumer_heartbeat_interval_ms}"
            )


def check_groups(broker: BrokerConfig) -> None:
    """Raises ConfigError unless a broker's settings for its groups go together."""
    if "classic" not in broker.group_coordinator_rebalance_protocols:
        given = ",".join(broker.group_coordinator_rebalance_protocols)
        raise ConfigError(
            f"group.coordinator.rebalance.protocols={given} is not allowed: classic has to be one of them"
        )
    if not broker.group_consumer_assignors:
        raise ConfigError("group.consumer.assignors is empty: name at least one of uniform, range")
    GroupConfig.from_layers([Layer(Source.STATIC_BROKER_CONFIG, broker.given)], {}).check_limits(broker)


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        verb, _, noun = name.partition(".")
        raise ConfigError(
            f"{name}={value} must lie between {low} (group.{verb}.min.{noun})"
            f" and {high} (group.{verb}.max.{noun})"
        )
