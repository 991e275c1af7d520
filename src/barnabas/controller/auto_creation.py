"""Topics that come into being when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.config import BrokerConfig
from barnabas.controller.topics import NewTopic, TopicControl
from barnabas.errors import ErrorCode, KafkaError
from barnabas.text import logger_of
from barnabas.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

log = logger_of(__name__)

_REPLICATION_SETTINGS = {
    GROUP_METADATA_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
}


class AutoCreation:
    """Makes topics with the broker's defaults.

    Args:
        config: the broker's settings of the moment.
        topics: the controller's part that makes topics.
    """

    def __init__(self, config: Callable[[], BrokerConfig], topics: TopicControl) -> None:
        self._config = config
        self._topics = topics
        #: why internal topics could not be made when that was last logged
        self._logged: dict[str, str] = {}

    async def create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Make topics; afterwards they are in the broker's image.

        The answer has the errors of those that could not be made. One that someone else made meanwhile is
        none. If none can be made now, all are unknown topics, as in Apache Kafka: clients ask again.
        """
        topics = [_defaults(name, self._config()) for name in dict.fromkeys(names)]
        try:
            results = await self._topics.create(topics)
        except KafkaError as error:
            unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.message)
            return {topic.name: unknown for topic in topics}
        errors = {
            name: result
            for name, result in results.items()
            if isinstance(result, KafkaError) and result.code is not ErrorCode.TOPIC_ALREADY_EXISTS
        }
        for name, why in errors.items():
            self._report(name, why)
        return errors

    def _report(self, name: str, error: KafkaError) -> None:
        """Groups and transactions wait without a word while their internal topic cannot be made."""
        setting = _REPLICATION_SETTINGS.get(name)
        if setting is None or self._logged.get(name) == error.message:
            return
        self._logged[name] = error.message
        cure = ""
        if error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
            cure = f": start more brokers, or start this one with {setting}=1"
        log.error("%s cannot be created, and its clients wait for it: %s%s", name, error.message, cure)


def _defaults(name: str, config: BrokerConfig) -> NewTopic:
    if name == GROUP_METADATA_TOPIC:
        return NewTopic(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        return NewTopic(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        )
    return NewTopic(name)
