"""The present state of a broker and of its cluster, in one object that every part of the broker may read."""

from __future__ import annotations

from abc import ABC, abstractmethod

from barnabas.base.environment.clock import Clock
from barnabas.base.types import BrokerId
from barnabas.broker.config import BrokerConfig, GroupConfig, TopicConfig
from barnabas.broker.metadata.configs import ConfigResolver
from barnabas.broker.metadata.image import ClusterImage, ImageDelta
from barnabas.broker.metadata.loader import MetadataLoader

#: the epoch of a broker that has not registered yet
NOT_REGISTERED = -1


class BrokerView(ABC):
    """The present settings, cluster image and broker epoch.

    The values change. So do not store an attribute's value: read the attribute again for each use.

    The event loop owns all values. The view is the first listener of the metadata loader. So when the loader
    calls another listener, the view already has the new image and the new settings.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def node_id(self) -> BrokerId:
        """The id of this broker."""

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """The broker's clock."""

    @property
    @abstractmethod
    def configs(self) -> ConfigResolver:
        """Resolves the settings of brokers, topics and groups, for any image."""

    @property
    @abstractmethod
    def config(self) -> BrokerConfig:
        """This broker's effective settings."""

    @property
    @abstractmethod
    def image(self) -> ClusterImage:
        """The latest cluster image. The metadata loader replaces it as a whole."""

    @property
    @abstractmethod
    def broker_epoch(self) -> int:
        """The epoch of this broker's latest registration (KIP-380); `NOT_REGISTERED` before the first one."""

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the effective settings of a topic.

        If the topic does not exist, return the settings that a new topic would get.
        """
        return self.configs.topic_config(self.image, topic)

    def group_config(self, group_id: str) -> GroupConfig:
        """Return the effective settings of a consumer group or share group."""
        return self.configs.group_config(self.image, group_id)


class MutableView(BrokerView):
    """A view whose values the broker changes. They are attributes of the object, because reads must be fast.

    `follow` keeps the metadata image and the settings up to date. The registration sets `broker_epoch`.

    Args:
        config: settings with which the broker starts; settings in the metadata override them later.
        clock: clock of the broker.
    """

    __slots__ = ("broker_epoch", "clock", "config", "configs", "image", "node_id")

    node_id: BrokerId
    clock: Clock
    configs: ConfigResolver
    config: BrokerConfig
    image: ClusterImage
    broker_epoch: int

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.node_id = config.node_id
        self.clock = clock
        self.configs = ConfigResolver(config, config.node_id)
        self.config = config
        self.image = ClusterImage()
        self.broker_epoch = NOT_REGISTERED

    def follow(self, loader: MetadataLoader) -> None:
        """Set `image` to the image of `loader`, now and after each change. Also update `config`.

        A listener that reads the view must subscribe to `loader` after this call.
        """
        loader.subscribe(self._apply)
        self._apply(ImageDelta(self.image, loader.image, broker_configs=True))

    def _apply(self, delta: ImageDelta) -> None:
        self.image = delta.after
        if delta.broker_configs:
            self.config = self.configs.broker_config(delta.after)
