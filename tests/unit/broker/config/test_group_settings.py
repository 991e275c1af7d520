"""The settings of a group, and their limits in the broker's settings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.broker.config import BrokerConfig, GroupConfig
from barnabas.broker.config.group import check_groups
from barnabas.broker.config.share_start import EARLIEST, LATEST, start_timestamp

NOW = 1_800_000_000_000
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("share.auto.offset.reset", "none"),
        ("share.auto.offset.reset", "by_duration:"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "by_duration:PT"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "by_duration:PT-1H"),
        ("share.auto.offset.reset", "by_duration:P1Y"),
        ("share.isolation.level", "serializable"),
        ("share.delivery.count.limit", "1"),
        ("share.partition.max.record.locks", "99"),
        ("share.renew.acknowledge.enable", "yes"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        GroupConfig.from_text({name: text})


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("share.heartbeat.interval.ms", "4999", "group.share.min.heartbeat.interval.ms"),
        ("share.session.timeout.ms", "60001", "group.share.max.session.timeout.ms"),
        ("share.record.lock.duration.ms", "14999", "group.share.min.record.lock.duration.ms"),
        ("share.delivery.count.limit", "11", "group.share.max.delivery.count.limit"),
        ("share.partition.max.record.locks", "4001", "group.share.max.partition.max.record.locks"),
        ("consumer.session.timeout.ms", "60001", "group.consumer.max.session.timeout.ms"),
    ],
)
def test_a_groups_value_lies_within_the_brokers_bounds(name: str, value: str, bound: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value} must lie between .*{bound}"):
        GroupConfig.from_text({name: value}).check_limits(BrokerConfig())


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_session_outlasts_its_heartbeats(kind: str) -> None:
    broker = BrokerConfig.from_text(
        {
            f"group.{kind}.min.session.timeout.ms": "1000",
            f"group.{kind}.session.timeout.ms": "5000",
        }
    )
    with pytest.raises(ConfigError, match=f"{kind}.session.timeout.ms=5000 must be greater than"):
        check_groups(broker)


def test_a_broker_whose_default_is_outside_its_own_bounds_does_not_start() -> None:
    with pytest.raises(ConfigError, match="must lie between 3 "):
        check_groups(
            BrokerConfig.from_text(
                {"group.share.delivery.count.limit": "2", "group.share.min.delivery.count.limit": "3"}
            )
        )


@pytest.mark.parametrize(
    ("reset", "timestamp"),
    [
        ("latest", LATEST),
        ("earliest", EARLIEST),
        ("by_duration:PT1H", NOW - HOUR),
        ("by_duration:P1DT2H3M4.5678S", NOW - 26 * HOUR - 3 * 60_000 - 4567),
        ("by_duration:PT0.05S", NOW - 50),
        ("by_duration:P999999999D", 0),
    ],
)
def test_the_start_of_a_share_group_as_a_timestamp(reset: str, timestamp: int) -> None:
    config = GroupConfig.from_text({"share.auto.offset.reset": reset})
    assert start_timestamp(config.share_auto_offset_reset, NOW) == timestamp


@given(st.text("PTDHMS0123456789.", min_size=1, max_size=12))
def test_every_duration_that_is_accepted_can_be_read(text: str) -> None:
    try:
        config = GroupConfig.from_text({"share.auto.offset.reset": f"by_duration:{text}"})
    except ConfigError:
        return
    assert 0 <= start_timestamp(config.share_auto_offset_reset, NOW) <= NOW
