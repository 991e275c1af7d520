"""Creates topics on their first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType

from barnabas.base.errors import ErrorCode, KafkaError, error_code
from barnabas.base.text import logger_of
from barnabas.base.types import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller.eligibility import eligibility_of, known_brokers
from barnabas.broker.controller.internal_topics import CLUSTER_REPLICAS
from barnabas.broker.controller.topics import DEFAULT
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

log = logger_of(__name__)

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})
_REPLICATION_SETTINGS = {
    GROUP_METADATA_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
    SHARE_GROUP_STATE_TOPIC: "share.coordinator.state.topic.replication.factor",
}


class AutoCreation:
    """Creates topics with the broker's default settings.

    Args:
        view: settings of this broker, and its image (copy) of the cluster's metadata.
        create: called with a request; sends it to the controller, waits until this broker's image has the
            topics, and returns the response. Raises KafkaError.
    """

    def __init__(
        self, view: BrokerView, create: Callable[[CreateTopicsRequest], Awaitable[CreateTopicsResponse]]
    ) -> None:
        self._view = view
        self._create = create
        #: by internal topic, the last logged reason why it could not be created
        self._logged: dict[str, str] = {}

    async def create(
        self, names: Iterable[str], configs: Mapping[str, str] = _NO_CONFIGS
    ) -> dict[str, KafkaError]:
        """Create topics, and wait until this broker's image of the metadata has them.

        Args:
            names: names of the topics.
            configs: settings of those topics that are not internal.

        Returns:
            The errors of topics that could not be created. There is no error for a topic that another client
            has created meanwhile. If the whole request fails, each topic has UNKNOWN_TOPIC_OR_PARTITION with
            the reason as its message.
        """
        config, image = self._view.config, self._view.image
        running, known = len(eligibility_of(image).in_sync), len(known_brokers(image))
        topics = [_defaults(name, config, running, known, configs) for name in dict.fromkeys(names)]
        try:
            response = await self._create(CreateTopicsRequest(topics=topics))
        except KafkaError as error:
            unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.message)
            return {topic.name: unknown for topic in topics}
        errors = {
            result.name: KafkaError(error_code(result.error_code), result.error_message)
            for result in response.topics
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        }
        for name, why in errors.items():
            self._report(name, why)
        return errors

    def _report(self, name: str, error: KafkaError) -> None:
        """Log why an internal topic cannot be created, unless the last logged reason was the same.

        The log is the only place with the reason: clients that need the topic retry without an error. Do
        nothing for topics that are not internal.
        """
        setting = _REPLICATION_SETTINGS.get(name)
        if setting is None or self._logged.get(name) == error.message:
            return
        self._logged[name] = error.message
        hint = ""
        if error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
            hint = f": start more brokers, or start this one with {setting}=1"
        log.error("%s cannot be created, and its clients wait for it: %s%s", name, error.message, hint)


def _defaults(
    name: str, config: BrokerConfig, running: int, known: int, configs: Mapping[str, str]
) -> CreatableTopic:
    replicas, min_isr = 1, 1
    if config.zookeeper_connect is not None:
        min_isr = 2
        # Brokers that are away also get replicas, if enough of the others run for the topic to accept writes.
        # In a cluster of few brokers, the controller adds replicas when more brokers join.
        replicas = max(1, min(CLUSTER_REPLICAS, known if running >= min_isr else running))
    if name == GROUP_METADATA_TOPIC:
        return _topic(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor or replicas,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        return _topic(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor or replicas,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr or min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                # An unclean election could lose a decision, and end the transaction differently elsewhere.
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE_TOPIC:
        return _topic(
            name,
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor or replicas,
            {
                # The share coordinator deletes what newer snapshots have superseded.
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "compression.type": "producer",
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr or min_isr),
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            },
        )
    return _topic(name, DEFAULT, DEFAULT, configs)


def _topic(name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=each, value=value) for each, value in configs.items()],
    )
