"""The settings of a consumer group (KIP-848) or a share group (KIP-932, KIP-1240).

Most of them have a setting of the broker as their default.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.broker.config import share_start
from barnabas.broker.config.broker import BrokerConfig
from barnabas.broker.config.declaration import Update, boolean, string
from barnabas.broker.config.layers import Layer, Settings, Source


def _overriding(broker_name: str, doc: str, **changes: Any) -> Any:
    """Declare a group's setting that overrides the broker's setting `broker_name` for this group.

    The name of the group's setting is `broker_name` without ``group.``. Its default is the broker's value.

    Args:
        broker_name: the broker's setting, for example ``group.consumer.session.timeout.ms``.
        doc: the description of the group's setting.
        changes: fields of `Setting` in which the two settings differ, for example another minimum.
    """
    name = broker_name.removeprefix("group.")
    return replace(BrokerConfig.declared[broker_name], name=name, synonyms=(broker_name,), doc=doc, **changes)


class GroupConfig(Settings, update=Update.CLUSTER_WIDE):
    """The settings of one group: its own values, or else the broker's defaults."""

    consumer_heartbeat_interval_ms: int = _overriding(
        "group.consumer.heartbeat.interval.ms",
        "The interval, in milliseconds, at which members send heartbeats.",
    )
    consumer_session_timeout_ms: int = _overriding(
        "group.consumer.session.timeout.ms",
        "The time, in milliseconds, without a heartbeat after which a member is removed.",
    )
    share_heartbeat_interval_ms: int = _overriding(
        "group.share.heartbeat.interval.ms",
        "The interval, in milliseconds, at which members of a share group send heartbeats.",
    )
    share_session_timeout_ms: int = _overriding(
        "group.share.session.timeout.ms",
        "The time, in milliseconds, without a heartbeat after which a member of a share group is removed.",
    )
    share_record_lock_duration_ms: int = _overriding(
        "group.share.record.lock.duration.ms",
        "The time, in milliseconds, after which a member's lock on a record ends.",
    )
    share_delivery_count_limit: int = _overriding(
        "group.share.delivery.count.limit",
        "The number of deliveries after which the group gives up a record.",
        maximum=25,
    )
    share_partition_max_record_locks: int = _overriding(
        "group.share.partition.max.record.locks",
        "The largest number of records of one partition that members can have at a time.",
    )
    share_auto_offset_reset: str = string(
        "share.auto.offset.reset",
        "latest",
        items=(share_start.PATTERN, "write latest, earliest, or by_duration: with a duration (PnDTnHnMn.nS)"),
        doc="The start of a share group in a partition that it has not read: `latest`, `earliest`, or the "
        "age of the first record (`by_duration:PT1H`).",
    )
    share_isolation_level: str = string(
        "share.isolation.level",
        "read_uncommitted",
        choices=("read_committed", "read_uncommitted"),
        doc="Whether a share group receives records of transactions before they commit.",
    )
    share_renew_acknowledge_enable: bool = boolean(
        "share.renew.acknowledge.enable",
        True,
        doc="Whether members of a share group can extend the locks of their records (KIP-1222).",
    )
    errors_deadletterqueue_topic_name: str = string(
        "errors.deadletterqueue.topic.name",
        "",
        items=(r"(?!__)[a-zA-Z0-9._-]{0,249}", "write the name of a topic that does not begin with __"),
        doc="The dead-letter queue of a share group (KIP-1191): the topic for records that the group gives "
        "up. If it is empty, the group has no dead-letter queue. The topic needs "
        "`errors.deadletterqueue.group.enable`.",
    )
    errors_deadletterqueue_copy_record_enable: bool = boolean(
        "errors.deadletterqueue.copy.record.enable",
        False,
        doc="Whether a dead letter has the key, the value and the headers of its record. Without them, it "
        "has only the headers that name the record.",
    )

    def capped(self, broker: BrokerConfig) -> tuple[GroupConfig, list[str]]:
        """Return these settings, with the group's own values changed to fit the broker's limits (KIP-1240).

        A limit can have changed after a value was stored. A value outside the limits becomes the nearest
        limit. The second result has one description for each value that was changed.
        """
        changed, notes = {}, []
        for name in LIMITED:
            if name not in self.given:
                continue
            value, (low_name, low, high_name, high) = self.value(name), _limits(name, broker)
            effective = min(max(value, low), high)
            if effective != value:
                limit = low_name if effective == low else high_name
                changed[name] = str(effective)
                notes.append(f"{name}={value} counts as {effective} ({limit})")
        if not changed:
            return self, notes
        own, *others = self.layers
        layers = [own._replace(texts={**own.texts, **changed}), *others]
        return type(self).from_layers(layers, {**self.given, **changed}), notes

    def check_limits(self, broker: BrokerConfig) -> None:
        """Check the effective values: those of the group, or else the broker's defaults.

        Raises ConfigError if a value is outside the broker's limits. Also raises ConfigError if a session
        timeout is not longer than the heartbeat interval of the same kind of group.
        """
        for name in LIMITED:
            value, (low_name, low, high_name, high) = self.value(name), _limits(name, broker)
            if not low <= value <= high:
                raise ConfigError(
                    f"{name}={value} must lie between {low} ({low_name}) and {high} ({high_name})"
                )
        for kind in ("consumer", "share"):
            timeout, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
            if self.value(timeout) <= self.value(interval):
                raise ConfigError(
                    f"{timeout}={self.value(timeout)} must be greater than {interval}={self.value(interval)}"
                )


#: settings whose bounds are settings of the broker, as ``group.consumer.min.session.timeout.ms``
LIMITED = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
)


def check_groups(broker: BrokerConfig) -> None:
    """Check a broker's settings for its groups.

    Raises ConfigError if the protocol ``classic`` is not enabled or there is no assignor. Also raises it if a
    default of the groups' settings is outside its limits, or a session timeout is not longer than the
    heartbeat interval.
    """
    if "classic" not in broker.group_coordinator_rebalance_protocols:
        given = ",".join(broker.group_coordinator_rebalance_protocols)
        raise ConfigError(
            f"group.coordinator.rebalance.protocols={given} is not allowed: classic has to be one of them"
        )
    if not broker.group_consumer_assignors:
        raise ConfigError("group.consumer.assignors is empty: name at least one of uniform, range")
    GroupConfig.from_layers([Layer(Source.STATIC_BROKER_CONFIG, broker.given)], {}).check_limits(broker)


def _limits(name: str, broker: BrokerConfig) -> tuple[str, int, str, int]:
    """Return the limits of the group's setting `name` (settings of `broker`).

    The result is (lower limit's name, its value, upper limit's name, its value).
    """
    low_name, high_name = (limit_of(name, bound) for bound in ("min", "max"))
    return low_name, broker.value(low_name), high_name, broker.value(high_name)


def limit_of(name: str, bound: str) -> str:
    """Return the name of the broker's setting that limits the group's setting `name`.

    Args:
        name: for example ``consumer.session.timeout.ms``.
        bound: ``min`` or ``max``.
    """
    kind, _, noun = name.partition(".")
    return f"group.{kind}.{bound}.{noun}"
