"""The source of a setting's value."""

from __future__ import annotations

import logging

import pytest

from barnabas.base.errors import ConfigError
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.config.describe import describe_broker, describe_group, describe_topic
from barnabas.broker.config.layers import Source
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.metadata.configs import ConfigResolver
from barnabas.broker.metadata.features import SHARE_VERSION, FinalizedFeatures
from barnabas.broker.metadata.image import ALL_BROKERS

HOUR = 3_600_000


def test_topic_setting_comes_from_topic_then_broker_then_all_brokers_then_start_then_default() -> None:
    resolver = ConfigResolver(BrokerConfig.from_text({"log.segment.bytes": "4000"}), 1)

    def value(**sets: dict[str, str]) -> int:
        image = ClusterImage(
            topic_configs={"t": sets.get("topic", {})},
            broker_configs={"1": sets.get("broker", {}), ALL_BROKERS: sets.get("every", {})},
        )
        return resolver.topic_config(image, "t").segment_bytes

    topic, broker = {"segment.bytes": "1000"}, {"log.segment.bytes": "2000"}
    every = {"log.segment.bytes": "3000"}
    assert value(topic=topic, broker=broker, every=every) == 1000
    assert value(broker=broker, every=every) == 2000
    assert value(every=every) == 3000
    assert value() == 4000
    assert ConfigResolver(BrokerConfig(), 1).topic_config(ClusterImage(), "t").segment_bytes == 2**30


def test_one_setting_alone_has_the_value_that_it_has_among_all() -> None:
    start = {
        "log.retention.hours": "1",
        "log.cleaner.max.compaction.lag.ms": "9",
        "log.segment.bytes": "4000",
    }
    resolver = ConfigResolver(BrokerConfig.from_text(start), 1)
    image = ClusterImage(
        topic_configs={"t": {"max.compaction.lag.ms": "8"}},
        broker_configs={"1": {"log.segment.bytes": "2000"}, ALL_BROKERS: {"log.retention.minutes": "2"}},
    )
    for topic in ("t", "plain"):
        for setting, value in resolver.topic_config(image, topic).items():
            assert TopicConfig.read_one(setting.name, resolver.topic_layers(image, topic)) == value


def test_finer_unit_goes_before_a_coarser_one_in_the_same_place() -> None:
    config = BrokerConfig.from_text({"log.retention.ms": "5", "log.retention.hours": "1"})
    assert config.log_retention_ms == 5
    assert BrokerConfig.from_text({"log.retention.minutes": "2"}).log_retention_ms == 120_000
    assert BrokerConfig.from_text({"log.retention.hours": "-1"}).log_retention_ms == -1
    assert BrokerConfig().log_retention_ms == 168 * HOUR


def test_run_time_value_in_ms_goes_before_hours_given_at_start() -> None:
    resolver = ConfigResolver(BrokerConfig.from_text({"log.retention.hours": "1"}), 1)
    image = ClusterImage(broker_configs={ALL_BROKERS: {"log.retention.ms": "7"}})
    assert resolver.topic_config(image, "t").retention_ms == 7
    assert resolver.broker_config(image).log_retention_ms == 7
    assert resolver.topic_config(ClusterImage(), "t").retention_ms == HOUR


def test_settings_of_another_broker_do_not_count() -> None:
    image = ClusterImage(broker_configs={"2": {"log.segment.bytes": "5000"}})
    assert ConfigResolver(BrokerConfig(node_id=1), 1).broker_config(image).log_segment_bytes == 2**30
    assert ConfigResolver(BrokerConfig(node_id=2), 2).broker_config(image).log_segment_bytes == 5000


def test_stored_setting_that_this_version_does_not_know_or_allow_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    image = ClusterImage(
        topic_configs={"t": {"from.the.future": "1", "retention.ms": "8", "segment.ms": "nonsense"}},
        broker_configs={ALL_BROKERS: {"node.id": "9", "log.retention.bytes": "10"}},
    )
    with caplog.at_level(logging.WARNING):
        config = ConfigResolver(BrokerConfig(), 1).topic_config(image, "t")
    assert (config.retention_ms, config.segment_ms, config.retention_bytes) == (8, 168 * HOUR, 10)
    for name in ("from.the.future", "segment.ms", "node.id"):
        assert name in caplog.text


def test_other_spellings_of_a_broker_setting_are_taken() -> None:
    config = BrokerConfig.from_text({"broker.id": "4", "log.dir": "/x"})
    assert (config.node_id, config.log_dirs) == (4, ("/x",))
    assert config.given == {"node.id": "4", "log.dirs": "/x"}


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("num.partitions", "many", "write a whole number"),
        ("num.partitions", "0", "it must be at least 1"),
        ("num.partitions", "3000000000", "it must lie between"),
        ("auto.create.topics.enable", "yes", "write true or false"),
        ("compression.type", "rar", "choose from uncompressed, zstd"),
        ("log.cleanup.policy", "delete,hide", "choose from delete, compact"),
    ],
)
def test_refusal_names_setting_value_and_cure(name: str, text: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}={text} is not allowed: {hint}"):
        BrokerConfig.from_text({name: text})


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"num\.colours"):
        BrokerConfig.from_text({"num.colours": "3"})
    with pytest.raises(ConfigError, match="num_colours"):
        BrokerConfig(num_colours=3)
    with pytest.raises(ConfigError, match=r"log\.retention\.ms"):
        TopicConfig.from_text({"log.retention.ms": "3"})  # a broker's name is not a topic's


def test_misspelt_setting_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match=r"num\.partition is not .* did you mean num\.partitions\?"):
        BrokerConfig.from_text({"num.partition": "3"})
    with pytest.raises(ConfigError, match=r"colour is not .* docs/reference/configuration\.md"):
        TopicConfig.from_text({"colour": "red"})


def test_settings_are_immutable_and_replaced_by_copies() -> None:
    config = BrokerConfig.from_text({"log.dir": "/x", "log.retention.hours": "1"})
    with pytest.raises(AttributeError, match="replace"):
        config.node_id = 5
    changed = config.replace(node_id=5, log_dirs=("/y",))
    assert (changed.node_id, changed.log_dirs, changed.log_retention_ms) == (5, ("/y",), HOUR)
    assert (config.node_id, config.log_dirs) == (1, ("/x",))
    assert config.replace() == config != changed


def test_description_of_a_topic_setting_tells_source_and_every_name() -> None:
    resolver = ConfigResolver(BrokerConfig.from_text({"log.retention.hours": "1"}), 1)
    image = ClusterImage(
        topic_configs={"t": {"retention.ms": "5"}}, broker_configs={"1": {"log.retention.ms": "6"}}
    )
    described = {d.setting.name: d for d in describe_topic(resolver.topic_layers(image, "t"))}
    retention = described["retention.ms"]
    assert (retention.text, retention.source) == ("5", Source.DYNAMIC_TOPIC_CONFIG)
    assert [tuple(entry) for entry in retention.entries] == [
        ("retention.ms", "5", Source.DYNAMIC_TOPIC_CONFIG),
        ("log.retention.ms", "6", Source.DYNAMIC_BROKER_CONFIG),
        ("log.retention.hours", "1", Source.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", Source.DEFAULT_CONFIG),
    ]
    described = {d.setting.name: d for d in describe_topic(resolver.topic_layers(ClusterImage(), "u"))}
    assert (described["retention.ms"].text, described["retention.ms"].source) == (
        str(HOUR),
        Source.STATIC_BROKER_CONFIG,
    )


def test_broker_setting_that_is_not_set_by_its_own_name_is_described_without_a_value() -> None:
    resolver = ConfigResolver(BrokerConfig(), 1)
    described = {d.setting.name: d for d in describe_broker(resolver.broker_layers(ClusterImage()))}
    assert described["log.retention.ms"].text is None
    assert described["log.retention.hours"].text == "168"
    assert described.keys() == BrokerConfig.declared.keys()


def test_every_rendered_value_parses_back() -> None:
    for settings in (BrokerConfig, TopicConfig):
        for setting in settings.declared.values():
            text = setting.render(setting.default)
            if text is not None:
                assert setting.parse(text) == setting.default


def test_a_dead_letter_queue_below_its_feature_level_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    image = ClusterImage(group_configs={"workers": {"errors.deadletterqueue.topic.name": "dlq.jobs"}})
    old, new = (image._replace(features=FinalizedFeatures({SHARE_VERSION: level})) for level in (1, 2))
    for each in (new, old):
        resolver = ConfigResolver(BrokerConfig.from_text({}), 1)
        assert not caplog.records
        for group in ("workers", "workers", "others"):
            resolver.group_config(each, group)
    (warning,) = caplog.messages
    assert "group workers has no dead letters" in warning
    assert "barnabas features upgrade share.version=2" in warning


def test_a_stored_value_of_a_group_is_capped_at_the_brokers_present_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored = {"share.record.lock.duration.ms": "55000", "share.delivery.count.limit": "2"}
    image = ClusterImage(group_configs={"workers": stored})

    def locks(**texts: str) -> tuple[int, int]:
        broker = BrokerConfig.from_text({name.replace("_", "."): text for name, text in texts.items()})
        config = ConfigResolver(broker, 1).group_config(image, "workers")
        return config.share_record_lock_duration_ms, config.share_delivery_count_limit

    assert locks() == (55000, 2)
    assert not caplog.records
    assert locks(group_share_max_record_lock_duration_ms="40000") == (40000, 2)
    assert "share.record.lock.duration.ms=55000 counts as 40000" in caplog.text
    assert locks(group_share_min_delivery_count_limit="3") == (55000, 3)


def test_a_cap_leaves_the_stored_value_for_describe_configs() -> None:
    image = ClusterImage(group_configs={"workers": {"share.record.lock.duration.ms": "55000"}})
    broker = BrokerConfig.from_text({"group.share.max.record.lock.duration.ms": "40000"})
    resolver = ConfigResolver(broker, 1)
    resolver.group_config(image, "workers")
    described = {
        each.setting.name: each.text for each in describe_group(resolver.group_layers(image, "workers"))
    }
    assert described["share.record.lock.duration.ms"] == "55000"
