"""Finds the replicas in failed log directories, because a registration lists only the directories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import BrokerId, TopicId, TopicPartition
from barnabas.broker.controller.replica_logs import Ask, failed_replicas
from barnabas.broker.metadata.image import BrokerImage, ImageDelta
from barnabas.broker.metadata.loader import MetadataLoader

log = logger_of(__name__)

#: between two attempts to ask a broker, in seconds
_RETRY = 1.0


class FailedDirs:
    """Asks each broker with failed directories which of its replicas are in them.

    A newly elected controller asks all of these brokers. If a broker registers again, the controller asks
    this broker again, because its directories may work now.

    Args:
        loader: loads this broker's image (copy) of the metadata.
        is_active: returns whether this broker is the controller.
        ask: sends a request to a broker. Called with the broker's id, which can be this broker's, and the
            request; returns the response, or raises BarnabasError.
        on_news: called, without arguments, when the controller learns of more failed replicas.
    """

    def __init__(
        self, loader: MetadataLoader, is_active: Callable[[], bool], ask: Ask, on_news: Callable[[], None]
    ) -> None:
        self._loader = loader
        self._is_active = is_active
        self._ask = ask
        self._on_news = on_news
        #: of each broker: its epoch and failed directories when it was asked, and its failed replicas. These
        #: are topic ids and partition indexes: a new topic can have the name of a deleted one
        self._known: dict[BrokerId, tuple[tuple[int, tuple[str, ...]], frozenset[tuple[TopicId, int]]]] = {}
        self._asking: asyncio.Task[None] | None = None

    def on_image(self, delta: ImageDelta) -> None:
        """Start to ask brokers if registrations have changed, because these list failed directories."""
        if delta.brokers:
            self.begin()

    def begin(self) -> None:
        """Start to ask the brokers whose present failed directories are not known yet."""
        if self._unasked() and (self._asking is None or self._asking.done()):
            self._asking = start_task(self._ask_all(), "failed log directories")

    async def stop(self) -> None:
        await stop_tasks(self._asking)

    def replicas(self) -> Mapping[TopicPartition, frozenset[BrokerId]]:
        """Return the brokers whose replica has failed, by partition.

        The result lacks the replicas of brokers that have not answered yet.
        """
        image = self._loader.image
        failed: dict[TopicPartition, frozenset[BrokerId]] = {}
        for broker in image.brokers.values():
            known = self._known.get(broker.id)
            if known is not None and known[0][0] == broker.epoch:
                for topic_id, number in known[1]:
                    if (name := image.topic_names.get(topic_id)) is not None:
                        partition = TopicPartition(name, number)
                        failed[partition] = failed.get(partition, frozenset()) | {broker.id}
        return failed

    def _unasked(self) -> list[BrokerImage]:
        if not self._is_active():
            return []
        return [
            broker
            for _, broker in sorted(self._loader.image.brokers.items())
            if broker.failed_log_dirs
            and self._known.get(broker.id, (None, None))[0] != (broker.epoch, broker.failed_log_dirs)
        ]

    async def _ask_all(self) -> None:
        while unasked := self._unasked():
            for broker in unasked:
                failed = await failed_replicas(self._ask, self._loader.image, broker.id)
                if failed is not None:
                    self._known[broker.id] = (broker.epoch, broker.failed_log_dirs), failed
                    if failed:
                        log.warning(
                            "%d replicas of broker %d are in failed directories", len(failed), broker.id
                        )
                        self._on_news()
            if self._unasked():
                await asyncio.sleep(_RETRY)
