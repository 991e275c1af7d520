"""Effective settings of brokers, topics and groups: stored settings override those of the broker's start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.base.errors import ConfigError
from barnabas.base.text import logger_of
from barnabas.base.types import BrokerId
from barnabas.broker.config import BrokerConfig, GroupConfig, Settings, TopicConfig, Update
from barnabas.broker.config.describe import Description, describe_topic
from barnabas.broker.config.layers import Layer, Source
from barnabas.broker.metadata.features import DEAD_LETTERS_LEVEL, SHARE_VERSION
from barnabas.broker.metadata.image import ALL_BROKERS, ClusterImage

log = logger_of(__name__)


class ConfigResolver:
    """Combines the settings in the cluster image with those of a broker's start (KIP-226).

    A topic's value comes from the first of these sources that sets it: the topic, the broker, all brokers,
    the broker's start, the default. For a group, the first source is the group instead of the topic. For a
    broker, the first source is the broker. Results are cached until the image's settings change.

    Args:
        static: the settings with which this broker was started.
        broker_id: id of this broker.
    """

    def __init__(self, static: BrokerConfig, broker_id: BrokerId) -> None:
        self._static = static
        self._broker_id = str(broker_id)
        self._defaults = BrokerConfig.default_layer()
        self._source: Mapping[str, Mapping[str, str]] = {}
        self._layers = self._broker_layers(ClusterImage())
        self._broker = static
        self._plain_topic = TopicConfig.from_layers(self._layers, {})
        #: the description of `_plain_topic`, after the first request for it
        self._described: list[Description] | None = None
        #: topics with their own settings: these settings as text, and the effective settings
        self._topics: dict[str, tuple[Mapping[str, str], TopicConfig]] = {}
        self._groups: dict[str, GroupConfig] = {}
        self._group_source: Mapping[str, Mapping[str, str]] = {}

    @property
    def static(self) -> BrokerConfig:
        """The settings with which this broker was started."""
        return self._static

    def broker_config(self, image: ClusterImage) -> BrokerConfig:
        """Return this broker's effective settings."""
        self._refresh(image)
        return self._broker

    def topic_config(self, image: ClusterImage, topic: str) -> TopicConfig:
        """Return the effective settings of a topic.

        For a topic that does not exist, return the settings of a topic without settings of its own.
        """
        self._refresh(image)
        texts = image.topic_configs.get(topic)
        if texts is None:
            self._topics.pop(topic, None)
            return self._plain_topic
        known = self._topics.get(topic)
        if known is None or known[0] is not texts:
            config = TopicConfig.from_layers(self.topic_layers(image, topic), texts)
            known = self._topics[topic] = texts, config
        return known[1]

    def plain_topic(self, image: ClusterImage) -> list[Description]:
        """Return the descriptions of all settings of a topic that has no settings of its own.

        All such topics share this list, so callers should not change it.
        """
        self._refresh(image)
        if self._described is None:
            self._described = list(describe_topic(self._layers))
        return self._described

    def group_config(self, image: ClusterImage, group_id: str) -> GroupConfig:
        """Return the effective settings of a group, within the present limits of the broker (KIP-1240).

        For a group that does not exist, return the settings of a group without settings of its own. For a
        stored setting beyond a limit, the limit applies, and a warning is logged.
        """
        self._refresh(image)
        if group_id not in image.group_configs:
            group_id = ""  # all such groups have the same
        config = self._groups.get(group_id)
        if config is None:
            layers = self.group_layers(image, group_id)
            config, capped = GroupConfig.from_layers(layers, layers[0].texts).capped(self._broker)
            for each in capped:
                log.warning("a stored setting of group %s is beyond the broker's limit: %s", group_id, each)
            if (
                config.errors_deadletterqueue_topic_name
                and image.features.level(SHARE_VERSION) < DEAD_LETTERS_LEVEL
            ):
                log.warning(
                    "group %s has no dead letters, although errors.deadletterqueue.topic.name is set: raise "
                    "the feature share.version to %d (`barnabas features upgrade share.version=%d`)",
                    group_id,
                    DEAD_LETTERS_LEVEL,
                    DEAD_LETTERS_LEVEL,
                )
            self._groups[group_id] = config
        return config

    def broker_layers(self, image: ClusterImage) -> Sequence[Layer]:
        """Return the sources of this broker's settings. The first one with a value overrides the others."""
        self._refresh(image)
        return self._layers

    def topic_layers(self, image: ClusterImage, topic: str) -> Sequence[Layer]:
        """Return the sources of a topic's settings. The first one with a value overrides the others."""
        own = _sound(TopicConfig, image.topic_config(topic), f"topic {topic}")
        return [Layer(Source.DYNAMIC_TOPIC_CONFIG, own), *self.broker_layers(image)]

    def group_layers(self, image: ClusterImage, group_id: str) -> Sequence[Layer]:
        """Return the sources of a group's settings. The first one with a value overrides the others."""
        own = _sound(GroupConfig, image.group_config(group_id), f"group {group_id}")
        return [Layer(Source.DYNAMIC_GROUP_CONFIG, own), *self.broker_layers(image)]

    def _refresh(self, image: ClusterImage) -> None:
        if image.group_configs is not self._group_source:
            self._group_source = image.group_configs
            self._groups = {}
        if image.broker_configs is self._source:
            return
        self._source = image.broker_configs
        self._layers = self._broker_layers(image)
        self._broker = BrokerConfig.from_layers(self._layers, self._static.given)
        self._groups = {}
        self._topics = {}
        self._plain_topic = TopicConfig.from_layers(self._layers, {})
        self._described = None

    def _broker_layers(self, image: ClusterImage) -> list[Layer]:
        own = _sound(BrokerConfig, image.broker_config(self._broker_id), f"broker {self._broker_id}")
        shared = _sound(BrokerConfig, image.broker_config(ALL_BROKERS), "all brokers")
        return [
            Layer(Source.DYNAMIC_BROKER_CONFIG, own),
            Layer(Source.DYNAMIC_DEFAULT_BROKER_CONFIG, shared),
            Layer(Source.STATIC_BROKER_CONFIG, self._static.given),
            self._defaults,
        ]


def _sound(settings: type[Settings], texts: Mapping[str, str], whose: str) -> dict[str, str]:
    """Return the entries of `texts` that are known, valid and dynamic. Log a warning for each other entry.

    Another version may have written settings that this version does not know. `whose` names the topic, the
    group or the broker in the warning.
    """
    sound = {}
    for name, text in texts.items():
        try:
            setting = settings.find(name)
            setting.parse(text)
            if setting.update is Update.READ_ONLY:
                raise setting.invalid_value(text, "it is read at start only")
        except ConfigError as error:
            log.warning("ignoring a stored setting of %s: %s", whose, error)
        else:
            sound[name] = text
    return sound
