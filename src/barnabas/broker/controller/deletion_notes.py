"""Confirms in the metadata store that this broker has removed the logs of deleted topics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection

from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import BrokerId, TopicId
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import ImageDelta
from barnabas.broker.metadata.loader import MetadataLoader
from barnabas.broker.metadata.store import (
    BadVersionError,
    DamagedNodeError,
    Delete,
    MetadataStore,
    NoNodeError,
    SessionState,
    Set,
    StoreUnavailableError,
)

log = logger_of(__name__)

#: between two attempts, in seconds
_RETRY = 5.0


class DeletionNotes:
    """Removes this broker from the notes of deleted topics when it has no folders of these topics any more.

    A deletion note is a node of the metadata store. It has a deleted topic's id, and the brokers that may
    still have folders of the topic. A broker deletes the logs of a topic only if there is a note for the
    topic. Then it removes its own id from the note, by a write that depends on the node's version. The last
    broker removes the node. This needs no controller. A broker that crashed or was away still finds its id
    in the note, and then deletes the logs.

    Args:
        store: store with the notes.
        loader: loads the metadata image that shows the notes.
        broker_id: id of this broker.
        without: called with topic ids. It returns those ids whose topics have no folder in any log directory
            of this broker. The removal of the folders must be durable: they must not return after a crash.
    """

    def __init__(
        self,
        store: MetadataStore,
        loader: MetadataLoader,
        broker_id: BrokerId,
        without: Callable[[Collection[TopicId]], Awaitable[Collection[TopicId]]],
    ) -> None:
        self._store = store
        self._loader = loader
        self._broker_id = broker_id
        self._without = without
        self._confirming: asyncio.Task[None] | None = None
        self._is_stopped = False

    def on_image(self, delta: ImageDelta) -> None:
        """Start the task that removes this broker from the deletion notes in the new metadata image.

        The task waits until this broker has deleted the logs. Do nothing if the image has no notes, or if the
        task already runs.
        """
        if self._is_stopped:  # images go on coming for a while
            return
        if delta.after.deleted_topics and (self._confirming is None or self._confirming.done()):
            self._confirming = start_task(self._confirm_all(), "deletion notes")

    async def stop(self) -> None:
        self._is_stopped = True
        await stop_tasks(self._confirming)

    async def _confirm_all(self) -> None:
        while named := self._named():
            for topic_id in sorted(await self._without(named)):
                try:
                    await self._confirm(topic_id)
                except DamagedNodeError as error:
                    log.info("cannot remove the note of a deleted topic yet: %s", error)
                except StoreUnavailableError as error:
                    if self._store.state is not SessionState.CONNECTED:
                        return  # when it is again, all is read again, and this is begun again
                    log.info("cannot remove the notes of deleted topics yet: %s", error)
                    break
            with contextlib.suppress(StoreUnavailableError):
                await self._loader.settled()
            if self._named():
                await asyncio.sleep(_RETRY)

    async def _confirm(self, topic_id: TopicId) -> None:
        path = znodes.deleted_topic(topic_id)
        while (node := await self._store.exists(path)) is not None:
            left = znodes.decoded(path, znodes.decode_deleted_topic, node.data) - {self._broker_id}
            data = znodes.encode_deleted_topic(left)
            try:
                await self._store.multi(
                    [Set(path, data, node.version) if left else Delete(path, node.version)]
                )
            except (BadVersionError, NoNodeError):
                continue  # another broker was faster
            return

    def _named(self) -> list[TopicId]:
        notes = self._loader.image.deleted_topics
        return [topic_id for topic_id, brokers in notes.items() if self._broker_id in brokers]
