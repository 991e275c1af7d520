"""Throttled copies wait, by rates and lists that can change at any time."""

from __future__ import annotations

import pytest
from simulation.clocks import ManualClock

from barnabas.base.errors import ConfigError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.metadata.configs import ConfigResolver
from barnabas.broker.metadata.image import ClusterImage, ImageDelta, TopicImage
from barnabas.broker.replication.throttles import ReplicationThrottles, Throttle

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def throttle(clock: ManualClock) -> Throttle:
    made = Throttle(clock)
    made.set_rate(1000)
    made.set_throttled("t", {0})
    return made


def test_what_is_copied_in_the_long_run_is_the_rate(throttle: Throttle, clock: ManualClock) -> None:
    copied = 0
    for _ in range(1000):
        clock.advance(100)
        if throttle.allows(A, in_sync=False):
            throttle.record(A, 700)
            copied += 700
    assert copied == pytest.approx(100 * 1000, rel=0.02)


def test_a_large_copy_is_paid_for_before_the_next(throttle: Throttle, clock: ManualClock) -> None:
    throttle.record(A, 6000)
    assert throttle.delay() == pytest.approx(5.0, rel=0.01)
    clock.advance(4900)
    assert not throttle.allows(A, in_sync=False)
    clock.advance(101)
    assert throttle.allows(A, in_sync=False)


def test_a_pause_saves_up_no_more_than_one_second(throttle: Throttle, clock: ManualClock) -> None:
    clock.advance(3_600_000)
    throttle.record(A, 1500)
    assert not throttle.allows(A, in_sync=False)


def test_replicas_in_sync_and_those_that_are_not_named_are_not_held_up(throttle: Throttle) -> None:
    throttle.record(A, 10_000)
    assert throttle.allows(A, in_sync=True)
    assert throttle.allows(B, in_sync=False)
    throttle.record(B, 10_000)
    assert throttle.delay() == pytest.approx(9.0, rel=0.01)


def test_a_rate_of_zero_lets_no_more_than_the_replicas_in_sync_through(
    throttle: Throttle, clock: ManualClock
) -> None:
    throttle.set_rate(0)
    clock.advance(1_000_000)
    assert not throttle.allows(A, in_sync=False)
    assert throttle.allows(A, in_sync=True)


def test_settings_take_effect_and_are_lifted(clock: ManualClock) -> None:
    throttles = ReplicationThrottles(2, ConfigResolver(BrokerConfig(node_id=2), 2), clock)
    topics = {"t": TopicImage("t", bytes(16), ())}
    before = ClusterImage(topics=topics)
    lists = {
        "leader.replication.throttled.replicas": "0:1,1:2",
        "follower.replication.throttled.replicas": "*",
    }
    rates = {"leader.replication.throttled.rate": "10", "follower.replication.throttled.rate": "20"}
    after = ClusterImage(topics=topics, topic_configs={"t": lists}, broker_configs={"2": rates})
    throttles.apply(ImageDelta(before, after, topic_configs=frozenset({"t"}), broker_configs=True))
    for each in (throttles.leader, throttles.follower):
        each.record(A, 1000)
        each.record(B, 1000)
    assert throttles.leader.allows(A, in_sync=False)
    assert not throttles.leader.allows(B, in_sync=False)
    assert not throttles.follower.allows(A, in_sync=False)
    assert throttles.leader.delay() == pytest.approx(99, rel=0.01)
    assert throttles.follower.delay() == pytest.approx(99, rel=0.01)
    throttles.apply(ImageDelta(after, before, topic_configs=frozenset({"t"}), broker_configs=True))
    for each in (throttles.leader, throttles.follower):
        assert each.allows(A, in_sync=False)
        assert each.allows(B, in_sync=False)
        assert each.delay() == 0


@pytest.mark.parametrize("text", ["0", "a:b", "0:1:2", "-1:2", "0:1,", "**", "0:"])
def test_a_list_that_names_no_replicas_is_refused(text: str) -> None:
    setting = TopicConfig.declared["leader.replication.throttled.replicas"]
    with pytest.raises(ConfigError, match="PARTITION:BROKER"):
        setting.parse(text)


@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1,12:101"])
def test_a_list_of_replicas_is_taken(text: str) -> None:
    setting = TopicConfig.declared["leader.replication.throttled.replicas"]
    assert setting.render(setting.parse(text)) == text
